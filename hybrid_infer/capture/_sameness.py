"""Does code ask whether a list, a dict or a tensor that it is given is one that it has from elsewhere?

``config is self.config``: the values of both are looked at before each call, and which of two equal ones it is shows in
neither. A static model tells apart which arguments are one, and so does it objects with attributes (see `_given`).
"""

from __future__ import annotations

import functools
import opcode
import types
from typing import Any, NamedTuple

from hybrid_infer.fingerprint import _iteration
from hybrid_infer.fingerprint._steps import Steps

_VARIABLES = ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLOSURE")
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_IS = opcode.opmap["IS_OP"]
#: How far an operand goes back.
_FAR = 30


class _Comparison(NamedTuple):
    """Of a parameter, or a variable of an enclosing function, by ``is``.

    ``names``: of a global and of attributes of it that it is compared with; none where that comes from elsewhere.
    """

    parameter: str
    names: tuple[str, ...]


def asks(code: types.CodeType) -> bool:
    """May a piece of code ask that of a parameter?"""
    return bool(_comparisons(code))


def asked(frame: Any) -> str | None:
    """That a frame that begins asks it of something of which there may be two alike, in words."""
    for parameter, names in _comparisons(frame.f_code):
        given = frame.f_locals.get(parameter)
        if _has_content(given) and (not names or _has_content(_found(names, frame.f_globals))):
            return f"whether `{parameter}` is an object that it has from elsewhere"
    return None


def _has_content(value: Any) -> bool:
    kind = type(value)
    return issubclass(kind, (list, dict, set, bytearray)) or (hasattr(kind, "dtype") and hasattr(kind, "__setitem__"))


def _found(names: tuple[str, ...], scope: dict[str, Any]) -> Any:
    """What a global and attributes of modules and classes lead to; None where there is nothing of the kind."""
    found = scope.get(names[0])
    for name in names[1:]:
        found = vars(found).get(name) if isinstance(found, (types.ModuleType, type)) else None
    return found


@functools.lru_cache(maxsize=1024)
def _comparisons(code: types.CodeType) -> tuple[_Comparison, ...]:
    parameters = (*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_freevars)
    if not parameters or _IS not in code.co_code[::2]:
        return ()
    steps = Steps(code)
    found = []
    for at, step in enumerate(steps):
        if step.opname != "IS_OP" or (right := _begin(steps, at)) is None or (left := _begin(steps, right)) is None:
            continue
        one, other = _written(steps[left:right]), _written(steps[right:at])
        for operand, with_what in ((one, other), (other, one)):
            of_parameter = len(operand) == 1 and operand[0].opname in _VARIABLES and operand[0].argval in parameters
            if of_parameter and (names := _names(with_what)) is not None:
                found.append(_Comparison(operand[0].argval, names))
    return tuple(found)


def _begin(steps: Steps, at: int) -> int | None:
    """The first of the steps before one that make what lies on top of the stack there."""
    needed = 1
    for place in range(at - 1, max(at - _FAR, -1), -1):
        takes = None if place + 1 in steps.targets else _iteration.taken(steps[place])
        if takes is None:
            return None
        needed += takes - _iteration.given(steps[place], takes)
        if needed <= 0:
            return place
    return None


def _written(operand: list[Any]) -> list[Any]:
    """An operand without the calls in which Paddle passes on each variable of code that it has rewritten."""
    steps = [step for step in operand if step.opname != "PUSH_NULL"]
    passes = [at for at, step in enumerate(steps) if step.argval == "Ld" and steps[at - 1].argval == "_jst"]
    calls = [at for at, step in enumerate(steps) if step.opname in _iteration.CALLS]
    if len(passes) != len(calls):
        return operand
    left_out = {*passes, *(at - 1 for at in passes), *calls}
    return [step for at, step in enumerate(steps) if at not in left_out]


def _names(operand: list[Any]) -> tuple[str, ...] | None:
    """The names that lead to it from a global; none from elsewhere.

    None of a constant, of a variable by itself, and of what an operator or a call gives.
    """
    if operand[-1].opname not in (*_GLOBALS, *_ATTRIBUTES) and not _iteration.is_subscript(operand[-1]):
        return None
    if operand[0].opname in _GLOBALS and all(step.opname in _ATTRIBUTES for step in operand[1:]):
        return tuple(step.argval for step in operand)
    return ()
