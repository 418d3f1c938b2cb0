"""Warnings that one thread is not to be told of, and what other threads warn of meanwhile."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from hybrid_infer._unwarned import unwarned


def elsewhere(run: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def warned() -> bool:
    """Is a warning made an error, as the program asked?"""
    try:
        warnings.warn("computing", stacklevel=2)
    except UserWarning:
        return True
    return False


def test_it_ignores_what_its_own_thread_warns_of_alone() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with unwarned():
            warnings.warn("here", stacklevel=1)
            elsewhere(lambda: warnings.warn("there", stacklevel=1))
        warnings.warn("after", stacklevel=1)
    assert [str(each.message) for each in heard] == ["there", "after"]


def test_an_error_that_warnings_are_made_of_is_none_here() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with unwarned(DeprecationWarning):
            warnings.warn("here", DeprecationWarning, stacklevel=1)
            with pytest.raises(UserWarning, match="of another kind"):
                warnings.warn("of another kind", stacklevel=1)
        with pytest.raises(DeprecationWarning, match="after"):
            warnings.warn("after", DeprecationWarning, stacklevel=1)


def test_no_warning_is_noted_as_told_that_was_not() -> None:
    def says() -> None:
        warnings.warn("computing", stacklevel=1)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        with unwarned():
            says()
        says()
        says()
    assert len(heard) == 1


def test_overlapping_with_another_threads_own_filters_leaves_none_behind() -> None:
    before = list(warnings.filters)
    inside, outside = threading.Event(), threading.Event()

    def other() -> None:
        with warnings.catch_warnings():
            inside.set()
            outside.wait(60)

    with unwarned():
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(60)
    outside.set()
    thread.join()
    assert warnings.filters == before

    entered, left = threading.Event(), threading.Event()

    def first() -> None:
        with warnings.catch_warnings():
            entered.set()
            left.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(60)
    with unwarned():
        left.set()
        thread.join()
    assert warnings.filters == before


def test_threads_are_heard_while_another_captures(framework: Any) -> None:
    if framework.__name__ == "torch":
        from hybrid_infer.frontends._torch_capture import _quiet as quiet
    else:
        from hybrid_infer.frontends._paddle_quiet import quiet
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet():
            assert not warned() and elsewhere(warned)
        assert warned()
