"""Methods and functions of libraries that are others for a while: on one thread alone, on all but one, or on all."""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

_BEHIND: weakref.WeakKeyDictionary[types.FunctionType, Any] = weakref.WeakKeyDictionary()
_BEFORE: dict[types.FunctionType, Any] = {}  # the way back, while it lasts


@contextlib.contextmanager
def replaced(where: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """For calls of this thread: `function`, given what the class or module has itself first."""
    with _replaced(where, name, function, threading.get_ident().__eq__):
        yield


@contextlib.contextmanager
def elsewhere(where: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """For calls of all other threads: `function`, given what the class or module has itself first."""
    with _replaced(where, name, function, threading.get_ident().__ne__):
        yield


@contextlib.contextmanager
def exchanged(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """For all threads: each (class or module, name, value), and what was there again, or nothing, in the end."""
    before = []
    try:
        for where, name, value in changes:
            own = vars(where).get(name, _NOTHING)
            setattr(where, name, value)
            before.append((where, name, own))
        yield
    finally:
        for where, name, own in reversed(before):
            if own is _NOTHING:
                delattr(where, name)
            else:
                setattr(where, name, own)


_NOTHING = object()


@contextlib.contextmanager
def _replaced(where: Any, name: str, function: Callable[..., Any], on: Callable[[int], bool]) -> Iterator[None]:
    method = vars(where)[name]

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if on(threading.get_ident()):
            return function(method, *args, **kwargs)
        return method(*args, **kwargs)

    _BEHIND[call] = method  # type: ignore[index]
    setattr(where, name, call)
    if type(method) is types.FunctionType:
        _BEFORE[method] = call
    try:
        yield
    finally:
        _BEFORE.pop(method, None)
        setattr(where, name, method)


@contextlib.contextmanager
def redirected(method: types.FunctionType, function: Callable[..., Any]) -> Iterator[None]:
    """For calls of this thread, by whoever holds the method: `function`, given a function that does what it did.

    Its code is another one meanwhile, since code of the program may have kept it from before it put its own in the
    place where the library looks for it. A method with a closure cannot be given one, and stays.
    """
    if method.__closure__:
        yield
        return
    code, thread = method.__code__, threading.get_ident()
    itself = types.FunctionType(code, method.__globals__, method.__name__, method.__defaults__)
    itself.__kwdefaults__ = method.__kwdefaults__

    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            return function(itself, *args, **kwargs)
        return itself(*args, **kwargs)

    place = method.__qualname__
    while place in _REDIRECTED and _REDIRECTED[place].on:
        place += "'"
    constants = tuple(place if const == _PLACE else const for const in _handed_on.__code__.co_consts)
    try:
        _REDIRECTED[place] = _Redirected(call, True)
        # Whose code it is, and by which version it counts, is told by its file.
        method.__code__ = _handed_on.__code__.replace(
            co_consts=constants, co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name
        )
        yield
    finally:
        method.__code__ = code
        _REDIRECTED[place] = _Redirected(itself, False)  # another thread may have come as far as to look it up


class _Redirected(NamedTuple):
    call: Callable[..., Any]
    on: bool


#: What methods are redirected to, by their names.
_REDIRECTED: dict[str, _Redirected] = {}


def _handed_on(*args: Any, **kwargs: Any) -> Any:
    """The code of a method of another module, whose names it would look up.

    A function among its constants would be nearer, but a compiler that is at work in another thread knows of none.
    """
    import sys

    return sys.modules["hybrid_infer._own_thread"]._REDIRECTED["what is called"].call(*args, **kwargs)


_PLACE = "what is called"


@contextlib.contextmanager
def recoded(changes: Iterable[tuple[types.FunctionType, types.CodeType]]) -> Iterator[None]:
    """For all threads: functions run code that was made of their own, as which it counts (see `itself`)."""
    done: list[tuple[types.FunctionType, types.CodeType, types.CodeType]] = []
    try:
        for function, made in changes:
            own = function.__code__
            _remember(made, own)
            function.__code__ = made
            done.append((function, own, made))
        yield
    finally:
        for function, own, made in reversed(done):
            if function.__code__ is made:  # the program may have given it other code meanwhile
                function.__code__ = own


def _remember(made: types.CodeType, own: types.CodeType) -> None:
    _MADE[id(made)] = made, own
    for inner, before in zip(made.co_consts, own.co_consts, strict=True):
        if inner is not before:
            _remember(inner, before)


#: Code that was made, and what of. For good, since another thread may run it still.
_MADE: dict[int, tuple[types.CodeType, types.CodeType]] = {}


def itself(code: types.CodeType) -> types.CodeType:
    """The program's own code, where a function runs other code for a while (see `recoded`)."""
    made, own = _MADE.get(id(code), (None, code))
    return own if made is code else code


def behind(value: Any) -> Any:
    """What the library has itself, where another thread may just have put a function of ours in its place."""
    while type(value) is types.FunctionType and value in _BEHIND:
        value = _BEHIND[value]
    return value


def before(value: Any) -> Any:
    """What stands in the place of a function for now, for who holds the function itself and looks up nothing."""
    while type(value) is types.FunctionType and value in _BEFORE:
        value = _BEFORE[value]
    return value


def found(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a decorated function's own code is for who traces it: the function, or what `before` says in a capture.

    Apart from that one, since a framework's compiler has to follow what this does.
    """
    return function
