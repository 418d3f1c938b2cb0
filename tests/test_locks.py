"""Locks that a method meets while it is traced: taken and let go of in peace, unless the result depends on them."""

from __future__ import annotations

import threading
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
        (inside, SERVED), (balanced, SERVED), (asks, ASKS), (tries, ASKS), (tries_by_name, ASKS), (swallows, ASKS),
    ],
)  # fmt: skip
def test_a_lock(framework: Any, function: Callable[[Any], Any], words: tuple[str, ...]) -> None:
    hot, x = inference(function), framework.ones([2, 3])
    with framework.no_grad():
        for _ in range(3):
            assert float(hot(x)[0, 0]) == 3.0
    answered(words, 3)


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
