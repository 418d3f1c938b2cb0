"""Code that asks for the class of an object by ``type(value)``, which answers a recording class while it is traced.

What it makes of the answer is nearly always its name, for a message. Where it may be compared, or looked up in a dict,
the objects in question keep their class: an answer of another kind would lead the trace another way.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CodeType

_SKIPPED = ("CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL")
#: Loads of one value by its name, which an argument may consist of, with attributes behind.
_LOADS = frozenset(
    {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"}
)
#: What a frozen dataclass is given, which looks whether to raise.
_FROZEN = ("__setattr__", "__delattr__")
#: Attributes of a class that are those of the class it records for.
_SAME = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})


def compares(code: CodeType) -> bool:
    """May it do more with ``type(value)`` than name the class?

    >>> compares((lambda x: f"{type(x)} {type(x.y).__name__}").__code__), compares((lambda x: type(x) is int).__code__)
    (False, True)
    """
    if "type" not in code.co_names or (code.co_filename == "<string>" and code.co_name in _FROZEN):
        return False
    found = [each for each in dis.get_instructions(code) if each.opname not in _SKIPPED]
    return any(
        each.opname in ("LOAD_GLOBAL", "LOAD_NAME") and each.argval == "type" and not _names(found[i + 1 :])
        for i, each in enumerate(found)
    )


def _names(rest: Sequence[dis.Instruction]) -> bool:
    """Do instructions behind ``type`` call it with one plain value, and ask for the name of what it answers?"""
    end = next((i for i, each in enumerate(rest[1:], 1) if each.opname != "LOAD_ATTR"), len(rest))
    if not rest or rest[0].opname not in _LOADS or end + 1 >= len(rest):
        return False
    call, then = rest[end], rest[end + 1]
    shown = then.opname.startswith(("FORMAT_", "CONVERT_VALUE"))
    named = shown or (then.opname == "LOAD_ATTR" and then.argval in _SAME)
    return call.opname in ("CALL", "CALL_FUNCTION") and call.argval == 1 and named
