"""Does code ask whether a list, a dict or a tensor that it is given is one that it has from elsewhere?

``config is self.config``: the values of both are looked at before each call, and which of two equal ones it is shows in
neither. A static model tells apart which arguments are one, and so does it objects with attributes (see `_given`).
"""

from __future__ import annotations

import enum
import functools
import opcode
import types
from collections import deque
from typing import Any, NamedTuple

from hybrid_infer.capture import _interpreter
from hybrid_infer.fingerprint import _iteration
from hybrid_infer.fingerprint._steps import GLOBALS, Steps, paddle_passes

_VARIABLES = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLOSURE")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_IS = opcode.opmap["IS_OP"]
_CONTAINERS = (list, dict, set, bytearray, deque, types.MappingProxyType)
_UNKNOWN: list[Any] = []


class _Comparison(NamedTuple):
    """Of a parameter, or a variable of an enclosing function, by ``is``.

    ``path``: what it is compared with, from a variable or a global by way of attributes; none where that is otherwise.
    """

    parameter: str
    path: tuple[str, ...]


def asks(code: types.CodeType) -> bool:
    """May a piece of code ask that of a parameter?"""
    return bool(_comparisons(code))


def asked(frame: Any) -> str | None:
    """That a frame that begins asks it of something of which there may be two alike, in words."""
    for parameter, path in _comparisons(frame.f_code):
        if _has_content(frame.f_locals.get(parameter)) and _has_content(_found(path, frame)):
            return f"whether `{parameter}` is an object that it has from elsewhere"
    return None


def _has_content(value: Any) -> bool:
    kind = type(value)
    if issubclass(kind, enum.Enum):  # of which there is one by each name
        return False
    if issubclass(kind, tuple):
        return len(value) > 0
    return issubclass(kind, _CONTAINERS) or (hasattr(kind, "dtype") and hasattr(kind, "__setitem__"))


def _found(path: tuple[str, ...], frame: Any) -> Any:
    """What a path leads to, without running code of the program's; a list where that cannot be told."""
    if not path:
        return _UNKNOWN
    inner = path[0] in frame.f_code.co_varnames or path[0] in frame.f_code.co_freevars
    found = (frame.f_locals if inner else frame.f_globals).get(path[0], _UNKNOWN if inner else None)
    if len(path) == 1:
        return None if inner and _is_of_callers(path[0], found, frame) else found
    for name in path[1:]:
        found = _attribute(found, name)
        if found is _UNKNOWN:
            break
    return found


def _is_of_callers(name: str, value: Any, frame: Any) -> bool:
    """Is a variable one of a function that runs, whose parameters a static model tells apart?"""
    while (frame := frame.f_back) is not None and frame.f_globals.get("__name__") != _interpreter.TRACING:
        if name in frame.f_code.co_cellvars and frame.f_locals.get(name) is value:
            return True
    return False


def _attribute(holder: Any, name: str) -> Any:
    if isinstance(holder, types.ModuleType):
        return vars(holder).get(name, _UNKNOWN)
    kinds = (holder if isinstance(holder, type) else type(holder)).__mro__
    of_class = next((vars(kind)[name] for kind in kinds if name in vars(kind)), _UNKNOWN)
    if of_class is not _UNKNOWN and hasattr(type(of_class), "__get__"):  # a property, or a slot
        return _UNKNOWN
    own = {} if isinstance(holder, type) else getattr(holder, "__dict__", {})
    if name in own or of_class is not _UNKNOWN:
        return own.get(name, of_class)
    groups = (own.get(group) for group in ("_parameters", "_buffers"))
    return next((held[name] for held in groups if isinstance(held, dict) and name in held), _UNKNOWN)


@functools.lru_cache(maxsize=1024)
def _comparisons(code: types.CodeType) -> tuple[_Comparison, ...]:
    parameters = (*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_freevars)
    if not parameters or _IS not in code.co_code[::2]:
        return ()
    steps = Steps(code)
    found = []
    for at, step in enumerate(steps):
        right = _iteration.begin(steps, at - 1) if step.opname == "IS_OP" else None
        left = None if right is None else _iteration.begin(steps, right - 1)
        if left is None:
            continue
        one, other = _written(steps[left:right]), _written(steps[right:at])
        for operand, with_what in ((one, other), (other, one)):
            of_parameter = len(operand) == 1 and operand[0].opname in _VARIABLES and operand[0].argval in parameters
            if of_parameter and (path := _path(with_what, code, steps)) is not None:
                found.append(_Comparison(operand[0].argval, path))
    return tuple(found)


def _written(operand: list[Any]) -> list[Any]:
    """An operand without the calls in which Paddle passes on each variable of code that it has rewritten."""
    steps = [step for step in operand if step.opname != "PUSH_NULL"]
    passes = paddle_passes(steps)
    calls = {at for at, step in enumerate(steps) if step.opname in _iteration.CALLS}
    if len(passes) != 2 * len(calls):
        return operand
    return [step for at, step in enumerate(steps) if at not in passes | calls]


def _path(operand: list[Any], code: types.CodeType, steps: Steps) -> tuple[str, ...] | None:
    """The names that lead to it from a global, a parameter or a variable of an enclosing function; none from elsewhere.

    None of a constant, of a variable of its own, and of what an operator or a call gives.
    """
    first, last = operand[0], operand[-1]
    if len(operand) == 1 and first.opname in _VARIABLES:
        return (first.argval,) if first.argval in code.co_freevars else None
    if last.opname not in (*GLOBALS, *_ATTRIBUTES) and not _iteration.is_subscript(last):
        return None
    stays = first.opname in GLOBALS or (
        first.opname in _VARIABLES
        and not any(step.opname.startswith("STORE_") and step.argval == first.argval for step in steps)
    )
    if stays and all(step.opname in _ATTRIBUTES for step in operand[1:]):
        return tuple(step.argval for step in operand)
    return ()
