"""With what does a name begin that code computes for ``getattr(self, ...)``: ``f"norm{i}"``, ``"up_" + str(i)``."""

from __future__ import annotations

import dis
from types import CodeType

_BEHIND = ("CACHE", "EXTENDED_ARG")
_CALLS = ("PRECALL", "CALL", "CALL_FUNCTION", "CALL_METHOD")
#: Instructions that take what they work on from the top of the stack and leave one object there.
_PLAIN = frozenset(
    {
        "BINARY_ADD", "BINARY_FLOOR_DIVIDE", "BINARY_MODULO", "BINARY_MULTIPLY", "BINARY_OP", "BINARY_SUBSCR",
        "BINARY_SUBTRACT", "BUILD_STRING", "BUILD_TUPLE", "CALL", "CALL_FUNCTION", "CALL_METHOD", "CONVERT_VALUE",
        "FORMAT_SIMPLE", "FORMAT_VALUE", "FORMAT_WITH_SPEC", "LOAD_ATTR", "LOAD_METHOD",
    }
)  # fmt: skip


def beginning(code: CodeType, offset: int) -> str:
    """The part that is the same each time; empty where it cannot be told.

    `offset`: of the instruction that loads ``getattr``, which loads of ``self`` and of the name follow. The object that
    begins with the part found so far is followed through the expression, by the depth of the stack above it.
    """
    rest = [i for i in dis.get_instructions(code) if i.offset > offset and i.opname not in _BEHIND][1:]
    if not rest or rest[0].opname != "LOAD_CONST" or not isinstance(rest[0].argval, str):
        return ""
    found, depth, method = rest[0].argval, 1, False
    for item in rest[1:]:
        name, after = item.opname, depth + dis.stack_effect(item.opcode, item.arg, jump=False)
        if name in _CALLS and after < 1 and not (method and after == 0):
            return "" if method else found  # that of getattr: nothing else was made of it
        if name in ("PRECALL", "PUSH_NULL") or (name.startswith("LOAD_") and name not in _PLAIN):
            depth = after
            continue
        if name not in _PLAIN:
            return ""
        if depth == 1 and name in ("LOAD_METHOD", "LOAD_ATTR"):
            if item.argval != "format":
                return ""
            found, method = found.partition("{")[0], True
        elif after <= 1:  # it was taken from the stack, and something else stands in its place
            operator = str(item.argrepr).rstrip("=")
            if method:
                if name not in _CALLS:
                    return ""
                method = False
            elif operator == "%" or name == "BINARY_MODULO":
                found = found.partition("%")[0]
            elif operator != "+" and name not in ("BINARY_ADD", "BUILD_STRING"):
                return ""
        depth = max(after, 1)
    return ""
