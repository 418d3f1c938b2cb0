"""Errors that a handler of signals raises, such as a limit of time that a server sets for a request.

They are meant for the program, wherever in this library the signal has met it. A leaf module, which imports nothing of
ours.
"""

from __future__ import annotations

import functools
import inspect
import signal
import sys
import traceback
from collections.abc import Collection
from types import CodeType, FrameType
from typing import Any

_MET: set[bool] = set()


def met() -> bool:
    """Has there been such an error in this process? It may have left modules half imported, of the tracer's too."""
    return bool(_MET)


def let_through(fault: BaseException | None) -> None:
    """Raise an error that a handler of signals has raised, if `fault` is or comes of one."""
    found = raised(fault)
    if found is not None:
        raise found


def raised(fault: BaseException | None) -> BaseException | None:
    """The error of a handler among those that `fault` comes of, but for what the program was handling before."""
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    chain, seen = [fault], set()
    around = _around() if handlers else ()
    while handlers and chain:
        each = chain.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if each.__traceback__ is not None and each.__traceback__.tb_frame in around:
            continue
        if any(_handles(frame, handlers) for frame, _ in traceback.walk_tb(each.__traceback__)):
            _MET.add(True)
            return each
        chain += [each.__context__, each.__cause__]
    return None


def _around() -> tuple[FrameType, ...]:
    """The frames of the program on this thread outside of the caller of `raised`: an error that one of them caught,
    and handles by what it calls, is no news to it, though Python counts it among those that a later error comes of."""
    found, frame = [], sys._getframe(2).f_back
    while frame is not None:
        if not str(frame.f_globals.get("__name__")).startswith("hybrid_infer."):
            found.append(frame)
        frame = frame.f_back
    return tuple(found)


def _handles(frame: FrameType, handlers: Collection[CodeType]) -> bool:
    """Does a handler run in it? The code of a wrapper that a decorator makes is that of all that it is put on.

    A handler is given the frame that the signal has met.
    """
    code = frame.f_code
    if code not in handlers or not code.co_flags & inspect.CO_VARARGS:
        return code in handlers
    values = list(frame.f_locals.values())
    given = [*values, *(each for value in values if type(value) is tuple for each in value)]
    return any(isinstance(each, FrameType) for each in given)


def _code(handler: Any) -> CodeType | None:
    """The code of a handler in Python: a function, a method, a partial function or an object that is called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not hasattr(handler, "__code__"):
        handler = vars(type(handler)).get("__call__")
    found = getattr(handler, "__code__", None)
    return found if isinstance(found, CodeType) else None
