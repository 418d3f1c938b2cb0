"""What a forked child finds open: it has none of the threads that may have held a lock in its parent.

A leaf module, which imports nothing of ours: every room takes its locks from here.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_made: weakref.WeakSet[Lock] = weakref.WeakSet()
#: Python's own locks of modules that are being imported, weakly held, by their names.
_MODULE_LOCKS: dict[str, Callable[[], Any]] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})


class Lock:
    """A lock that is another one in a forked child. `make`: ``threading.Lock``, or ``threading.RLock``.

    >>> lock = Lock()
    >>> with lock:
    ...     lock.acquire(timeout=0.0)
    False
    """

    __slots__ = ("__weakref__", "_held", "_lock", "_make")

    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self._make = make
        self._lock = self._held = make()
        _made.add(self)

    def acquire(self, blocking: bool = True, timeout: float = -1.0) -> bool:
        lock = self._lock
        taken: bool = lock.acquire(blocking, timeout)
        if taken:
            self._held = lock  # which whoever forks inside of it gives back in the child, too
        return taken

    def release(self) -> None:
        self._held.release()

    def locked(self) -> bool:
        """Does a thread hold it? Of no use for an ``RLock``, which does not tell before Python 3.14."""
        held: bool = self._lock.locked()
        return held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *fault: object) -> None:
        self.release()

    def _renew(self) -> None:
        self._lock = self._make()


_PATIENCE = 10.0  # seconds for which a fork waits for imports, of which that of an exporter takes some
#: What a first call imports, by the first part of its name: what these import in turn is there once they are.
_OURS = frozenset({
    "hybrid_infer", "torch", "functorch", "paddle", "paddle2onnx", "onnx", "onnx_ir", "onnxscript", "onnxruntime",
    "openvino", "tensorrt", "cupy", "sympy",
})  # fmt: skip


_lost: list[Any] = []  # locks of modules whose threads are left in the parent: nobody gives them back
_within: list[int] = []  # the threads that are in what no fork is to fall into


class Unforked:
    """A ``with`` block for whose end forks in other threads wait: for C code that holds locks of its own in it."""

    __slots__ = ()

    def __enter__(self) -> None:
        _within.append(threading.get_ident())

    def __exit__(self, *fault: object) -> None:
        _within.remove(threading.get_ident())


def _before_fork() -> None:
    """Wait for threads that import modules of ours: they would stay half imported in the child, and hang it.

    So do the locks of C code.
    """
    deadline = time.monotonic() + _PATIENCE
    while (_elsewhere(_within) or _imported_elsewhere()) and time.monotonic() < deadline:
        time.sleep(0.001)


def _elsewhere(threads: list[int]) -> bool:
    here = threading.get_ident()
    return any(each != here for each in threads)


def _imported_elsewhere() -> bool:
    """Does another thread hold the lock of a module of ours, from before it looks for it until it is whole?"""
    return any(all(lock is not lost for lost in _lost) for lock in _held_elsewhere())


def _held_elsewhere() -> list[Any]:
    """The locks of modules of ours that other threads hold."""
    here = threading.get_ident()
    ours = [known() for name, known in _MODULE_LOCKS.copy().items() if name.partition(".")[0] in _OURS]
    return [lock for lock in ours if getattr(lock, "owner", None) not in (None, here)]


def _enter_child() -> None:
    for each in list(_made):
        each._renew()
    here = threading.get_ident()
    _within[:] = [each for each in _within if each == here]
    _lost[:] = _held_elsewhere()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_enter_child)


if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """``functools.cached_property`` without its lock.

        In Python 3.10 and 3.11 it computes under one lock for all instances, for which a child that is forked meanwhile
        waits for ever. Two threads may compute the same value here.
        """

        def __init__(self, func):
            self.func, self.__doc__ = func, func.__doc__

        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = vars(instance)[self.name] = self.func(instance)
            return value


__all__ = ["Lock", "Unforked", "cached_property"]
