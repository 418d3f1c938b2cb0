"""Code that asks for the class of an object by ``type(value)``, which answers a recording class while it is traced.

What it makes of the answer is nearly always its name, for a message, or whether it is a class that stands beside it.
An object that may be of that class keeps it, and where more is done with the answer, all do: an answer of another kind
would lead the trace another way.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any

from hybrid_infer.fingerprint._steps import GLOBALS

_SKIPPED = ("CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL")
#: Loads of one value by its name, which an argument may consist of, with attributes behind.
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", *GLOBALS, "LOAD_DEREF", "LOAD_CLASSDEREF"})
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_CALLS = ("CALL", "CALL_FUNCTION", "CALL_METHOD")
#: What a frozen dataclass is given, which looks whether to raise.
_FROZEN = ("__setattr__", "__delattr__")
#: Attributes of a class that are those of the class it records for.
_SAME = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})


def compares(code: CodeType, scope: Mapping[str, Any] = vars(builtins)) -> set[type]:
    """With which classes a piece of code, whose globals are `scope`, may compare what ``type(value)`` answers.

    ``object``, of which every class is one, stands for any: it may do more with the answer than that.

    >>> compares((lambda x: f"{type(x)} {type(x.y).__name__}").__code__), compares((lambda x: type(x) is int).__code__)
    (set(), {<class 'int'>})
    >>> compares((lambda x: {}[type(x)]).__code__)
    {<class 'object'>}
    """
    if code.co_filename == "<string>" and code.co_name in _FROZEN:
        return set()
    if not any(name == "type" or scope.get(name) is type for name in code.co_names):
        return set()
    steps = [each for each in dis.get_instructions(code) if each.opname not in _SKIPPED]
    found: set[type] = set()
    for place in range(len(steps)):
        value, end = _loaded(steps, place, scope)
        if value is type and not _names(steps[end:]):
            found |= _beside(steps[end:], scope)
    return found


def compares_values(code: CodeType) -> bool:
    """Does a piece of code ask whether two values are equal, of which the second is no constant?

    >>> compares_values((lambda x: x.a == x.b).__code__), compares_values((lambda x: x.a == 3 or x.a < x.b).__code__)
    (True, False)
    """
    steps = [each for each in dis.get_instructions(code) if each.opname not in _SKIPPED]
    asked = (place for place, each in enumerate(steps) if each.opname == "COMPARE_OP")
    return any(
        any(sign in str(steps[place].argval) for sign in ("==", "!="))
        and steps[place - 1].opname not in ("LOAD_CONST", "LOAD_SMALL_INT")
        for place in asked
    )


def looks_up_on(kind: type, code: CodeType, scope: Mapping[str, Any] = vars(builtins)) -> bool:
    """Does a piece of code look something up on a class itself, or on one derived from it, so as to apply it to an
    object, past what that answers?

    >>> looks_up_on(dict, (lambda d: dict.get(d, "a")).__code__), looks_up_on(dict, (lambda d: dict(d)).__code__)
    (True, False)
    """

    def is_one(value: Any) -> bool:
        return isinstance(value, type) and issubclass(value, kind)

    named = any(is_one(scope[name] if name in scope else vars(builtins).get(name)) for name in code.co_names)
    if not named and "__class__" not in code.co_names:
        return False
    steps = [each for each in dis.get_instructions(code) if each.opname not in _SKIPPED]
    for place, step in enumerate(steps):
        value, end = _loaded(steps, place, scope)
        asked = step.opname in _ATTRIBUTES and step.argval == "__class__"
        if asked:
            value, end = kind, place + 1
        if not is_one(value) or end >= len(steps):
            continue
        if steps[end].opname in _ATTRIBUTES and steps[end].argval not in _SAME:
            return True
        if (asked and steps[end].opname.startswith("STORE")) or (place and steps[place - 1].argval == "getattr"):
            return True
    return False


def _loaded(steps: Sequence[dis.Instruction], place: int, scope: Mapping[str, Any]) -> tuple[Any, int]:
    """The global that is loaded at a place, with the attributes of modules behind it, and the place after; or None."""
    if place >= len(steps) or steps[place].opname not in GLOBALS:
        return None, place
    name = steps[place].argval
    value = scope[name] if name in scope else vars(builtins).get(name)
    place += 1
    while isinstance(value, ModuleType) and place < len(steps) and steps[place].opname in _ATTRIBUTES:
        value, place = vars(value).get(steps[place].argval), place + 1
    return value, place


def _beside(rest: Sequence[dis.Instruction], scope: Mapping[str, Any]) -> set[type]:
    """The classes that stand beside a call of ``type`` in a comparison."""
    place = _argument(rest)
    if place is None or rest[place].opname not in _CALLS or rest[place].argval != 1:
        return {object}
    values: list[Any] = []
    place += 1
    while True:
        value, end = _loaded(rest, place, scope)
        if end == place:
            break
        values.append(value)
        place = end
    if place < len(rest) and rest[place].opname.startswith("BUILD_") and rest[place].argval == len(values):
        place += 1
    elif len(values) == 1 and isinstance(values[0], (tuple, frozenset)):
        values = list(values[0])
    compared = place < len(rest) and rest[place].opname in ("IS_OP", "COMPARE_OP", "CONTAINS_OP")
    return set(values) if compared and values and all(isinstance(each, type) for each in values) else {object}


def _argument(rest: Sequence[dis.Instruction]) -> int | None:
    """Where the instructions end that load one plain value, with its attributes; None if there are others."""
    if not rest or rest[0].opname not in _LOADS:
        return None
    end = next((i for i, each in enumerate(rest[1:], 1) if each.opname != "LOAD_ATTR"), len(rest))
    return end if end + 1 < len(rest) else None


def _names(rest: Sequence[dis.Instruction]) -> bool:
    """Do instructions behind ``type`` call it with one plain value, and ask for the name of what it answers?"""
    end = _argument(rest)
    if end is None:
        return False
    call, then = rest[end], rest[end + 1]
    shown = then.opname.startswith(("FORMAT_", "CONVERT_VALUE"))
    named = shown or (then.opname == "LOAD_ATTR" and then.argval in _SAME)
    return call.opname in _CALLS and call.argval == 1 and named
