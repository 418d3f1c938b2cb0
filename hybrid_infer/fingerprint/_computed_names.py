"""Of ``getattr(self, ...)``: is its object what was loaded first, and with what does a computed name begin?

Such as ``f"norm{i}"`` and ``"up_" + str(i)``.
"""

from __future__ import annotations

import dis
from types import CodeType

_BEHIND = ("CACHE", "EXTENDED_ARG")
_CALLS = ("PRECALL", "CALL", "CALL_FUNCTION", "CALL_METHOD")
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ALWAYS = ("JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_NO_INTERRUPT", "RETURN_VALUE", "RAISE_VARARGS")
#: What these look at, before Python 3.11.
_TURNS = {"DUP_TOP_TWO": 2, "ROT_TWO": 2, "ROT_THREE": 3, "ROT_FOUR": 4}
#: Instructions that take what they work on from the top of the stack and leave one object there.
_PLAIN = frozenset(
    {
        "BINARY_ADD", "BINARY_FLOOR_DIVIDE", "BINARY_MODULO", "BINARY_MULTIPLY", "BINARY_OP", "BINARY_SUBSCR",
        "BINARY_SUBTRACT", "BUILD_STRING", "BUILD_TUPLE", "CALL", "CALL_FUNCTION", "CALL_METHOD", "CONVERT_VALUE",
        "FORMAT_SIMPLE", "FORMAT_VALUE", "FORMAT_WITH_SPEC", "LOAD_ATTR", "LOAD_METHOD",
    }
)  # fmt: skip


def _after(code: CodeType, offset: int) -> list[dis.Instruction]:
    return [i for i in dis.get_instructions(code) if i.offset > offset and i.opname not in _BEHIND]


def whole(code: CodeType, offset: int, count: int) -> bool:
    """Are the first `count` instructions behind the one at `offset`, which loads ``getattr``, its whole first argument?

    Not so in ``getattr(self[0], name)``, ``getattr(self(), name)``, ``getattr(self or x, name)``: the stack is
    followed to the call, and nothing may touch what lies below.
    """
    rest = _after(code, offset)
    if len(rest) <= count or rest[count].is_jump_target or rest[0].opname == "PUSH_NULL":  # which a call begins with
        return False
    depth: int | None = rest[count - 1].opname.count("_FAST") == 2  # two variables at once
    depths: dict[int, int] = {}
    for item in rest[count:]:
        depth = depths.get(item.offset, depth)
        if depth is None:
            return False
        effect = dis.stack_effect(item.opcode, item.arg, jump=False)
        if _touched(item, effect) > depth:
            return item.opname in _CALLS and depth + 1 == item.arg and item.arg in (2, 3)
        if item.opcode in _JUMPS:
            if item.argval <= item.offset:
                return False
            depths[item.argval] = depth + dis.stack_effect(item.opcode, item.arg, jump=True)
        depth = None if item.opname in _ALWAYS else depth + effect
    return False


def _touched(item: dis.Instruction, effect: int) -> int:
    """How many objects on the stack an instruction may look at, at most."""
    if item.opname in ("COPY", "SWAP", "ROT_N"):
        return int(item.arg or 0)
    if item.opname in _TURNS:
        return _TURNS[item.opname]
    if item.opname in ("PUSH_NULL", "NOP") or (item.opname.startswith("LOAD_") and item.opname not in _PLAIN):
        return 0
    leaves = 0 if item.opcode in _JUMPS or item.opname == "POP_TOP" else 1
    return max(1, leaves - effect)


def beginning(code: CodeType, offset: int) -> str:
    """The part that is the same each time; empty where it cannot be told.

    `offset`: of the instruction that loads ``getattr``, which loads of ``self`` and of the name follow. The object that
    begins with the part found so far is followed through the expression, by the depth of the stack above it.
    """
    rest = _after(code, offset)[1:]
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
