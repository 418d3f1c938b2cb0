"""Locks that a method meets while it is traced: taken and let go of in peace, unless the result depends on them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import SERVED, answered, counts, layer_class

from hybrid_infer import inference

LOCK, AGAIN = threading.Lock(), threading.RLock()
TAKE = LOCK.acquire
ASKS, LEAVES = ("it reads whether a lock is held (",), ("it leaves a lock in another state than it found it in (",)


@pytest.fixture(autouse=True)
def free() -> Iterator[None]:
    yield
    for lock in (LOCK, AGAIN):
        if not lock.acquire(blocking=False):  # type: ignore[attr-defined]
            lock.release()  # type: ignore[attr-defined]
            raise AssertionError("a lock is still held")
        lock.release()  # type: ignore[attr-defined]


def inside(x: Any) -> Any:
    with LOCK, AGAIN:
        return x * 3


def inside_by_the_clock(x: Any) -> Any:
    """A method that names the clock is watched, as one in which a lock is named is not."""
    with LOCK, AGAIN:
        return x * time.time() if float(x.shape[0]) > 9 else x * 3


def by_a_stack(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(LOCK)
        stack.enter_context(AGAIN)
        return x * time.time() if float(x.shape[0]) > 9 else x * 3


def by_its_methods(x: Any) -> Any:
    LOCK.__enter__()
    x = x * 3
    LOCK.__exit__(None, None, None)
    return x


def balanced(x: Any) -> Any:
    LOCK.acquire()
    try:
        AGAIN.acquire()
        x = x * 3
        AGAIN.release()
        return x
    finally:
        LOCK.release()


def asks(x: Any) -> Any:
    return x * 2 if LOCK.locked() else x * 3


def tries(x: Any) -> Any:
    if LOCK.acquire(blocking=False):
        try:
            return x * 3
        finally:
            LOCK.release()
    return x * 2


def tries_by_name(x: Any) -> Any:
    if TAKE(False):
        LOCK.release()
        return x * 3
    return x * 2


def swallows(x: Any) -> Any:
    try:
        if not LOCK.acquire(timeout=0.01):
            return x * 2
        LOCK.release()
    except Exception:
        pass
    return x * 3


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (inside, SERVED), (inside_by_the_clock, SERVED), (by_its_methods, SERVED),
        (balanced, SERVED), (asks, ASKS), (tries, ASKS), (tries_by_name, ASKS), (swallows, ASKS),
    ],
)  # fmt: skip
def test_a_lock(framework: Any, function: Callable[[Any], Any], words: tuple[str, ...]) -> None:
    hot, x = inference(function), framework.ones([2, 3])
    with framework.no_grad():
        for _ in range(3):
            assert float(hot(x)[0, 0]) == 3.0
    answered(words, 3)
    assert not LOCK.locked() and AGAIN.acquire(blocking=False)
    AGAIN.release()


def test_locks_that_a_stack_takes_are_free_afterwards(framework: Any) -> None:
    hot, x = inference(by_a_stack), framework.ones([2, 3])
    with framework.no_grad():
        for _ in range(3):
            assert float(hot(x)[0, 0]) == 3.0 and not LOCK.locked()


@pytest.mark.parametrize("function", [asks, tries, tries_by_name, swallows])
def test_a_lock_that_another_holds(framework: Any, function: Callable[[Any], Any]) -> None:
    hot, x = inference(function), framework.ones([2, 3])
    with framework.no_grad():
        assert float(hot(x)[0, 0]) == 3.0
        with LOCK:
            assert float(hot(x)[0, 0]) == 2.0
        assert float(hot(x)[0, 0]) == 3.0
    answered(ASKS, 3)


@pytest.mark.parametrize("lock", [LOCK, AGAIN], ids=["Lock", "RLock"])
def test_a_lock_that_is_kept(framework: Any, lock: Any) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def takes(self, x: Any) -> Any:
            lock.acquire()
            return x * 3

        @inference()
        def gives(self, x: Any) -> Any:
            lock.release()
            return x * 3

    layer, x = Layer(), framework.ones([2, 3])
    with framework.no_grad():
        for _ in range(2):
            assert float(layer.takes(x)[0, 0]) == 3.0
            assert float(layer.gives(x)[0, 0]) == 3.0  # by which it is free again
    for part in ("takes", "gives"):
        found = counts(part)
        assert found["captures"] == 0 and found["eager_calls"] == 2, found
        assert [reason.startswith(LEAVES) for reason in found["fallbacks"]] == [True], found


def test_a_once_flag(framework: Any) -> None:
    flag = threading.Lock()

    def first(x: Any) -> Any:
        return x * 2 if flag.acquire(blocking=False) else x * 3

    hot, x = inference(first), framework.ones([2, 3])
    with framework.no_grad():
        assert [float(hot(x)[0, 0]) for _ in range(3)] == [2.0, 3.0, 3.0]
    answered(ASKS, 3)
