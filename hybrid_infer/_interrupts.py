"""Errors that a handler of signals raises, such as a limit of time that a server sets for a request, or that another
thread throws into this one.

They are meant for the program, wherever in this library they have met it. A leaf module, which imports nothing of
ours.
"""

from __future__ import annotations

import functools
import gc
import inspect
import opcode
import signal
import sys
import traceback
from collections.abc import Collection
from itertools import pairwise
from types import CodeType, FrameType, FunctionType
from typing import Any

_MET: set[bool] = set()
_RAISING = frozenset(opcode.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in opcode.opmap)


def met() -> bool:
    """Has such an error met an import in this process? That leaves modules half imported, of the tracer's too."""
    return bool(_MET)


def let_through(fault: BaseException | None) -> None:
    """Raise an error that is meant for the program, if `fault` is or comes of one."""
    found = raised(fault)
    if found is not None:
        raise found


def raised(fault: BaseException | None) -> BaseException | None:
    """The error meant for the program among those that `fault` comes of, but for what it was handling before."""
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    chain, seen, around = [fault], set(), _around()
    while chain:
        each = chain.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        if each.__traceback__ is not None and each.__traceback__.tb_frame in around:
            continue
        frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        if any(_handles(frame, handlers) or _signalled(frame) for frame in frames) or _thrown(each):
            if any(_imports(frame.f_code) for frame in frames):
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
    return any(type(each) is FrameType for each in given)


def _signalled(frame: FrameType) -> bool:
    """Was it called with the number of a signal and the frame that this has met?

    A handler may have put another one in its place before it raised.
    """
    if not _may_hold(frame, frame.f_back):
        return False
    code, held = frame.f_code, frame.f_locals
    given = [held.get(name) for name in code.co_varnames[: code.co_argcount]]
    if code.co_flags & inspect.CO_VARARGS:
        rest = held.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        given += rest if type(rest) is tuple else ()  # the function may have put something else under the name
    return any(each is not None and each is frame.f_back and isinstance(n, int) for n, each in pairwise(given))


def _may_hold(frame: FrameType, value: Any) -> bool:
    """May a frame that has returned have that frame among its locals? It refers to the one that called it anyway.

    No dict of the locals is made for that, which would keep all of them, and the error among them, until it is
    collected as garbage.
    """
    found = gc.get_referents(frame)
    held = [*found, *(each for inner in found if type(inner) is tuple for each in inner)]
    return sum(each is value for each in held) > 1


def _thrown(fault: BaseException) -> bool:
    """Was it thrown into this thread (``PyThreadState_SetAsyncExc``)? It then stands where no code raises it.

    Python is given its class alone. What C code raises is of a class of C, or has something to say.
    """
    kind, last = type(fault), fault.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or issubclass(kind, Warning) or not (kind is TimeoutError or _of_python(kind)):
        return False
    code = last.tb_frame.f_code.co_code
    at = last.tb_lasti
    if not 0 <= at < len(code) or code[at] in _RAISING:
        return False
    init = kind.__init__
    made = isinstance(init, FunctionType) and init.__code__.co_argcount - len(init.__defaults__ or ()) <= 1
    return made or not fault.args or str(fault.args[0]).startswith("While executing %")  # torch.fx writes that into it


def _of_python(kind: type) -> bool:
    """Does Python code define a class?"""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or str(file).endswith((".py", ".pyc"))


def _imports(code: CodeType) -> bool:
    """Is it the body of a module, or what imports one?"""
    return code.co_name == "<module>" or code.co_filename.startswith("<frozen importlib")


def _code(handler: Any) -> CodeType | None:
    """The code of a handler in Python: a function, a method, a partial function or an object that is called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not hasattr(handler, "__code__"):
        handler = vars(type(handler)).get("__call__")
    found = getattr(handler, "__code__", None)
    return found if isinstance(found, CodeType) else None
