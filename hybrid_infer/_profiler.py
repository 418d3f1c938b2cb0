"""A profile function of our own, on one thread and for a while, beside that of whoever profiles the program."""

from __future__ import annotations

import _lsprof
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from hybrid_infer._errors import TraceError

_LOCAL = threading.local()


class _Ours:
    """Our profile function: it tells `observe`, and first the one in Python that was on before."""

    def __init__(self, observe: Callable[[Any, str, Any], None], other: Any) -> None:
        self.other, self.lost = other, False
        self.function = _both(other, observe) if callable(other) else observe


def hindrance() -> str:
    """Why calls cannot be observed now: a profiler in C is on that could not be put back. Else nothing."""
    there: Any = sys.getprofile()
    if there is None or callable(there) or isinstance(there, _lsprof.Profiler):
        return ""
    return f"a profiler is on that cannot be set aside ({type(there).__module__}.{type(there).__qualname__})"


def on() -> bool:
    """Are calls on this thread observed?"""
    return _mine() is not None


@contextlib.contextmanager
def observed(observe: Callable[[Any, str, Any], None]) -> Iterator[_Ours]:
    """Calls inside are told to `observe`; ``lost`` says whether the code inside has put an end to that.

    Raises TraceError where they cannot be observed.
    """
    hindered = hindrance()
    if hindered:
        raise TraceError(hindered)
    before: Any = sys.getprofile()
    outer = _mine()
    mine = _Ours(observe, before if outer is None else outer.other)
    kept, _LOCAL.ours = getattr(_LOCAL, "ours", None), mine
    sys.setprofile(mine.function)
    try:
        yield mine
    finally:
        mine.lost = sys.getprofile() is not mine.function
        _LOCAL.ours = kept
        # Until Python 3.11 cProfile works by a profile function in C, which only its own method puts in place.
        if isinstance(before, _lsprof.Profiler):
            _lsprof.Profiler.enable(before)
        else:
            sys.setprofile(before)


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Calls inside are not told to us, which takes longer; a profiler in Python goes on."""
    mine = _mine()
    if mine is None:
        yield
        return
    sys.setprofile(mine.other if callable(mine.other) else None)
    try:
        yield
    finally:
        sys.setprofile(mine.function)


def _mine() -> _Ours | None:
    """Ours, where it is the one that is on."""
    ours: _Ours | None = getattr(_LOCAL, "ours", None)
    return ours if ours is not None and sys.getprofile() is ours.function else None


def _both(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[[Any, str, Any], None]:
    def observe(frame: Any, event: str, called: Any) -> None:
        first(frame, event, called)
        second(frame, event, called)

    return observe
