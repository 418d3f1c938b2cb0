"""How often Python's garbage collector goes through the whole process while a method is captured."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from hybrid_infer import inference
from hybrid_infer.capture import _garbage, _tracing


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_a_capture_looks_through_every_object_more_seldom_and_leaves_the_setting_as_it_was(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.set_threshold(701, 11, 9)
    seen, inside = [], _tracing._trace

    def trace(*arguments: Any) -> Any:
        seen.append(gc.get_threshold())
        return inside(*arguments)

    monkeypatch.setattr(_tracing, "_trace", trace)
    inference(lambda x: x * 2)(framework.ones([2, 3]))
    assert seen == [(701, 11, 90)]
    assert gc.get_threshold() == (701, 11, 9)


def test_the_setting_is_restored_after_an_error_and_what_the_program_sets_meanwhile_is_kept() -> None:
    gc.set_threshold(701, 11, 9)
    with pytest.raises(ZeroDivisionError), _garbage.seldom():
        1 / 0  # noqa: B018
    assert gc.get_threshold() == (701, 11, 9)
    with _garbage.seldom():
        gc.set_threshold(0)
    assert gc.get_threshold()[0] == 0


def test_a_collector_that_is_off_stays_off() -> None:
    gc.set_threshold(0, 11, 9)
    with _garbage.seldom():
        assert gc.get_threshold()[0] == 0
