"""``int(size * 0.5)``: Python makes a number of what it is told there, by which torch fixes the size.

It asks for nothing but a number, and no function can stand in the place of the class: others ask ``type(n) is int``. So
functions in which a trace met that are traced once more with other code, which calls a function in the place of
``int(...)``: on that thread it cuts off what is behind the point, as ``math.trunc`` does, and elsewhere it is ``int``.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import gc
import math
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import torch

from hybrid_infer._own_thread import recoded, replaced
from hybrid_infer.frontends._torch_lengths import by_tracer

_SYMBOLS = (torch.SymInt, torch.SymFloat)
#: By what other code calls the function, among Python's own, for as long as some thread may run that code.
_NAME = "int()"
#: From Python 3.11 on, an instruction that loads what is called says so.
_SAYS = sys.version_info >= (3, 11)
#: How far a function is looked for behind its name, and among how many objects.
_WRAPPERS, _MOST = 5, 1000

Changes = list[tuple[types.FunctionType, types.CodeType]]


class Place(NamedTuple):
    """The code of a function, and the names of its module."""

    code: types.CodeType
    space: dict[str, Any]


class _Thread(threading.local):
    traces = 0


_THREAD = _Thread()


@contextlib.contextmanager
def noted() -> Iterator[list[Place]]:
    """The functions that call ``int()`` of a size on this thread."""
    found: list[Place] = []

    def number(method: Callable[..., Any], size: Any) -> Any:
        if not by_tracer() and size.node.has_hint():
            found.append(_function(sys._getframe(2)))
        return method(size)

    with replaced(torch.SymInt, "__int__", number), replaced(torch.SymFloat, "__int__", number):
        yield found


def _function(frame: Any) -> Place:
    """That which a frame runs, or a comprehension in it."""
    while frame.f_back is not None and any(each is frame.f_code for each in frame.f_back.f_code.co_consts):
        frame = frame.f_back
    return Place(frame.f_code, frame.f_globals)


@contextlib.contextmanager
def as_sizes(changes: Changes) -> Iterator[None]:
    """While functions with such changes are traced on this thread, what ``int()`` makes of a size in them is one."""
    vars(builtins).setdefault(_NAME, _whole)
    _THREAD.traces += 1
    try:
        with recoded(changes):
            yield
    finally:
        _THREAD.traces -= 1


def _whole(*given: Any, **named: Any) -> Any:
    if _THREAD.traces and len(given) == 1 and type(given[0]) in _SYMBOLS and not named and given[0].node.has_hint():
        return math.trunc(given[0]) if type(given[0]) is torch.SymFloat else given[0]
    return int(*given, **named)


def changes(places: Collection[Place]) -> Changes:
    """Those of the functions that were met (see `as_sizes`)."""
    found: Changes = []
    for place in {id(place.code): place for place in places}.values():
        made = _with_function(place.code)
        if made is not None:
            found += [(each, made) for each in _functions(place) if _finds_int(each)]
    return found


def _functions(place: Place) -> list[types.FunctionType]:
    """All with that code, which the collector knows of; where it was told to forget, the one that has its name."""
    holder: Any = place.space
    for name in place.code.co_qualname.split("."):  # type: ignore[attr-defined]  # from Python 3.11 on
        holder = (holder if holder is place.space else vars(holder) if isinstance(holder, type) else {}).get(name)
    found = [*gc.get_referrers(place.code)]
    near = [holder]
    for _ in range(_WRAPPERS):  # decorators, bound methods and what they hold
        found += near
        near = [each for each in gc.get_referents(*near[:_MOST]) if not isinstance(each, (type, types.ModuleType))]
        near = [each for each in near if not isinstance(each, dict) or "__builtins__" not in each]
    same = (each for each in found if type(each) is types.FunctionType and each.__code__ is place.code)
    return [*{id(each): each for each in same}.values()]


def _finds_int(function: types.FunctionType) -> bool:
    space = function.__globals__
    return "int" not in space and any(space.get("__builtins__") is each for each in (builtins, vars(builtins)))


def _with_function(code: types.CodeType) -> types.CodeType | None:
    """The code that calls the function, also where it has comprehensions in it; None where it calls no ``int()``."""
    if not _SAYS:
        return None
    inner = [_with_function(each) or each if isinstance(each, types.CodeType) else each for each in code.co_consts]
    same = all(one is other for one, other in zip(inner, code.co_consts, strict=True))
    names = code.co_names
    loads = [step for step in dis.get_instructions(code) if step.opcode in dis.hasname and step.argval == "int"]
    if loads and all(step.opname == "LOAD_GLOBAL" and step.arg is not None and step.arg & 1 for step in loads):
        names = tuple(_NAME if name == "int" else name for name in names)
    elif same:
        return None
    return code.replace(co_names=names, co_consts=tuple(inner))
