"""What a forked child must know: which objects it inherited from its parent, and that their threads are not here.

Destroying an inherited session waits for worker threads that do not exist in the child, for ever; so does a region
of an inherited OpenMP pool. Objects of that kind are registered here and made immortal in the child.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Protocol


class Inherited(Protocol):
    def inherit(self) -> object:
        """Refuse all further work; returns what must never be destroyed in this process."""
        ...


_generation = 0
_callbacks: list[Callable[[], None]] = []
_live: weakref.WeakSet[Inherited] = weakref.WeakSet()


def generation() -> int:
    """How many forks lie between the first process and this one; an object made under another number is foreign."""
    return _generation


def in_child(callback: Callable[[], None]) -> None:
    """Call `callback` in every forked child, before anything else runs there."""
    _callbacks.append(callback)


def protect(thing: Inherited) -> None:
    """Keep what `thing` holds alive in forked children, to the end of their process and beyond its clean-up."""
    _live.add(thing)


def keep(thing: object) -> None:
    """Keep an object for as long as the process lives, and beyond its clean-up."""
    # A reference that is never given back: a list in this module would be emptied, and the sessions in it destroyed,
    # when the interpreter shuts down.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    global _generation
    _generation += 1
    for callback in _callbacks:
        callback()
    for thing in list(_live):
        keep(thing.inherit())
    _live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
