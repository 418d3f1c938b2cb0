"""What code makes of a set: does it only ask what is in it, or does it go by its order, another one in each process?

A value is followed from where it is loaded by its name to what takes it from the stack. What is not known to be blind
to the order counts as if it went by it.
"""

from __future__ import annotations

import builtins
import dis
import enum
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer.fingerprint._steps import GLOBALS, Steps


class Use(enum.IntEnum):
    """``ORDER``: code goes through a set as it is. ``HASHES``: it may go through another one that it makes of it."""

    NONE = 0
    ORDER = 1
    HASHES = 2


LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
CELLS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_CELLS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE"})
#: By which code has the value of a global, or of an attribute of anything.
NAMES = frozenset(
    {*GLOBALS, "LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR", "LOAD_FROM_DICT_OR_GLOBALS"}
)
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")

#: How many values instructions take from the stack.
_NOTHING = frozenset(
    {*LOCALS, *_CELLS, "LOAD_FAST_AND_CLEAR", "LOAD_CONST", "RETURN_CONST", *GLOBALS,
     "LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT", "PUSH_NULL", "LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "KW_NAMES",
     "IMPORT_FROM", "POP_BLOCK"}
)  # fmt: skip
_TAKES = {
    **dict.fromkeys(
        ("LOAD_ATTR", "LOAD_METHOD", "TO_BOOL", "GET_ITER", "GET_LEN", "STORE_FAST", "STORE_DEREF", "STORE_GLOBAL",
         "STORE_NAME", "POP_TOP", "RETURN_VALUE", "LIST_TO_TUPLE", "UNPACK_SEQUENCE", "UNPACK_EX", "FORMAT_SIMPLE",
         "CONVERT_VALUE", "LIST_EXTEND", "SET_UPDATE", "LIST_APPEND", "SET_ADD", "YIELD_VALUE"), 1
    ),
    **dict.fromkeys(("COMPARE_OP", "CONTAINS_OP", "IS_OP", "STORE_ATTR", "DELETE_SUBSCR", "FORMAT_WITH_SPEC",
                     "SET_FUNCTION_ATTRIBUTE"), 2),
    **dict.fromkeys(("STORE_SUBSCR", "LOAD_SUPER_ATTR", "BINARY_SLICE"), 3),
}  # fmt: skip
#: The same by their argument.
_MORE = {
    "BUILD_MAP": (2, 0), "BUILD_CONST_KEY_MAP": (1, 1), "CALL": (1, 2), "CALL_FUNCTION": (1, 1), "CALL_METHOD": (1, 2),
    "CALL_FUNCTION_KW": (1, 2), "CALL_KW": (1, 3), "RAISE_VARARGS": (1, 0),
    **dict.fromkeys(("BUILD_LIST", "BUILD_TUPLE", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"), (1, 0)),
}  # fmt: skip
CALLS = frozenset({"CALL", "CALL_FUNCTION", "CALL_METHOD"})
#: Before Python 3.11 a function is made of its qualified name too.
NAMED = sys.version_info < (3, 11)
#: The signs of operators that have instructions of their own there.
_SIGNS = {"AND": "&", "OR": "|", "XOR": "^", "SUBTRACT": "-"}
_BLIND = frozenset({"CONTAINS_OP", "IS_OP", "COMPARE_OP", "UNARY_NOT", "TO_BOOL", "POP_TOP", "GET_LEN"})
_THROUGH = frozenset({"GET_ITER", "UNPACK_SEQUENCE", "UNPACK_EX", "LIST_EXTEND"})
#: What is made of a value so that it is inside: for a comparison with another object's, for an attribute.
_HOLDING = frozenset({"BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"})
_TEXTS = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_STRING"})

#: Methods that tell nothing of the order, those whose result is of the same elements, and those that give what is held.
_BLIND_METHODS = frozenset(
    {"isdisjoint", "issubset", "issuperset", "add", "discard", "remove", "clear", "__contains__", "__len__", "__eq__",
     "__class__", "append"}
)  # fmt: skip
_MAKING = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_GIVING = frozenset({"get"})
_OF_CONTAINERS = frozenset().union(*(dir(kind) for kind in (set, frozenset, dict, list, tuple, deque)))
#: Builtins whose result is the same for any order, those that go through what they are given, and those that copy it.
_BLIND_CALLS = frozenset({"len", "bool", "sorted", "min", "max", "any", "all", "isinstance", "type", "id", "callable"})
_GOING = frozenset({"list", "tuple", "iter", "enumerate"})
_COPYING = frozenset({"set", "frozenset"})
#: What only tells of a value, where nobody takes what it gives back.
_TELLING = frozenset({"print", "warn", "debug", "info", "warning", "error", "exception", "critical"})
#: By which code makes sets, of what it goes through too, and by which it looks up names that it holds as texts.
_MAKES = (frozenset({"SET_ADD", "BUILD_SET", "SET_UPDATE"}), frozenset({"set", "frozenset", "add", "update"}))
_BY_TEXT = frozenset({"getattr", "__getattribute__", "attrgetter", "vars", "__dict__", "globals", "locals"})

#: Functions whose answers say what an object is, and decide nothing else.
TOLD = frozenset({"__hash__", "__repr__", "__str__", "__format__"})


class Body:
    """A piece of code, and the globals that it has. Its instructions are read once, for whatever is followed there."""

    def __init__(self, code: CodeType, scope: Mapping[str, Any]) -> None:
        self.code, self.scope = code, scope
        self.names = frozenset((*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars))

    @_fork_safe.cached_property
    def steps(self) -> Steps:
        return Steps(self.code)

    @_fork_safe.cached_property
    def inside(self) -> list[Body]:
        return [Body(each, self.scope) for each in self.code.co_consts if isinstance(each, CodeType)]

    @_fork_safe.cached_property
    def makes_sets(self) -> bool:
        """May it put what it goes through into another set?"""
        steps, names = _MAKES
        here = not names.isdisjoint(self.code.co_names) or any(each.opname in steps for each in self.steps)
        return here or any(each.makes_sets for each in self.inside)


def of_name(
    name: str, bodies: Iterable[Body], loads: Collection[str] = NAMES, others: Iterable[Body] | None = None
) -> Use | None:
    """What code makes of the sets that it has under a name, by `loads`; None where it does not have that name.

    `others`: the code that may take what this gives back, the method's first. Without it: the same.

    >>> def body(function): return [Body(function.__code__, {})]
    >>> of_name("names", body(lambda self, x: x if "a" in self.names and len(self.names) > 1 else None))
    <Use.NONE: 0>
    >>> of_name("names", body(lambda self: [name for name in self.names]))
    <Use.ORDER: 1>
    >>> of_name("names", body(lambda self: [name for name in self.names | {"a"}])), of_name("other", body(body))
    (<Use.HASHES: 2>, None)
    """
    bodies = [*bodies]
    everywhere = bodies if others is None else [*others]
    found: Use | None = None
    remade = False
    left, known = [(name, frozenset(loads), bodies)], {(name, frozenset(loads))}
    while left:
        wanted, by, among = left.pop()
        if by is NAMES and _by_text(wanted, among):
            return Use.HASHES
        for body in among:
            if body.code.co_name in TOLD or wanted not in body.names:
                continue
            follower = Follower(body)
            for use in follower.of_loads(wanted, by):
                found = max(found or Use.NONE, use)
            remade |= follower.remade
            entry = body.code is everywhere[0].code
            if not entry and not all(_looked_up(each, everywhere) for each in follower.returned):
                return Use.HASHES  # the function goes by another name, or by none
            for further in follower.further:
                if not further.isidentifier():  # a lambda
                    return Use.HASHES
                if (further, NAMES) not in known:
                    known.add((further, NAMES))
                    left.append((further, NAMES, everywhere))
    return Use.HASHES if found is Use.ORDER and remade else found


def _by_text(name: str, bodies: Collection[Body]) -> bool:
    """May code look a name up that it holds as a text?"""
    if not any(name in body.code.co_consts for body in bodies):
        return False
    return any(not _BY_TEXT.isdisjoint(body.code.co_names) for body in bodies)


def _looked_up(name: str, bodies: Collection[Body]) -> bool:
    return any(name in body.names for body in bodies)


def of_constants(body: Body, of_name: Callable[[str], Use | None]) -> Iterator[tuple[frozenset[Any], Use]]:
    """The sets that are constants of a piece of code, and what is made of each; `of_name` tells that of other names."""
    if body.code.co_name in TOLD or not any(type(const) is frozenset for const in body.code.co_consts):
        return
    for at, step in enumerate(body.steps):
        if step.opname == "LOAD_CONST" and type(step.argval) is frozenset:
            follower = Follower(body)
            following = body.steps[at + 1] if at + 1 < len(body.steps) else step
            if following.opname == "SET_UPDATE" and at and body.steps[at - 1].opname == "BUILD_SET":
                at += 1  # a set that is written out
            use = follower.follow(at, 0, at)
            used = use or any(map(of_name, follower.further))
            yield step.argval, Use.HASHES if used else Use.NONE


class Follower:
    """Follows values through one piece of code.

    ``further``: names under which code has them then: of functions that give one back (``returned``), of attributes
    that get one. ``remade``: an attribute or a global gets a set that was made of one.
    """

    def __init__(self, body: Body) -> None:
        self._body = body
        self.steps = body.steps
        self.further: set[str] = set()
        self.returned: set[str] = set()
        self.remade = False
        self._variables: set[tuple[str, bool]] = set()

    def of_loads(self, name: str, loads: Collection[str]) -> Iterator[Use]:
        for at, step in enumerate(self.steps):
            if step.opname in loads and step.argval == name:
                yield self.follow(at, 0, self._start(at))

    def _start(self, at: int) -> int | None:
        """Where the expression begins whose value is loaded here."""
        while at >= 0 and self.steps[at].opname in _ATTRIBUTES:
            at -= 1
        return at if at >= 0 and self.steps[at].opname in _NOTHING else None

    def follow(self, at: int, depth: int, start: int | None, made: bool = False, other: bool = False) -> Use:
        """What is made of the value that lies `depth` below the top of the stack, after the step `at`.

        ``made``: it is a set that was made of the one in question; ``other``: something else that was.
        """
        while (at := at + 1) < len(self.steps):
            step = self.steps[at]
            if at in self.steps.inlined and depth:
                at = self.steps.inlined[at]
                continue
            if step.opname == "JUMP_FORWARD":  # behind the other side of ``a if c else b``
                at = next(n for n, each in enumerate(self.steps) if each.offset >= step.argval) - 1
                continue
            if not depth and not other and (step.opname == "ROT_TWO" or (step.opname, step.arg) == ("SWAP", 2)):
                depth = 1  # below the object to whose attribute it goes back: ``self.names |= more``
                continue
            takes = taken(step)
            if takes is None:
                return Use.HASHES
            if depth >= takes:
                depth += given(step, takes) - takes
                continue
            name = step.opname
            if name == "RAISE_VARARGS":  # in a message of an error
                return Use.NONE
            if name in _TEXTS:
                depth, other = 0, True
            elif other:
                if name == "POP_TOP":
                    return Use.NONE if self._only_tells(at - 1) else Use.HASHES
                if name not in CALLS and not name.startswith(("BINARY_", "BUILD_", "CALL")):
                    return Use.HASHES
                depth = 0
            elif name in _BLIND or name.startswith("POP_JUMP"):
                return Use.NONE
            elif name in _THROUGH:
                return Use.HASHES if made or self._body.makes_sets else Use.ORDER
            elif name in ("BINARY_SUBSCR", "BINARY_OP") and is_subscript(step):
                if depth == 0:
                    return Use.NONE
                depth = 0
            elif name.startswith(("BINARY_", "INPLACE_")):
                if depth == 0 and start is not None:  # the right side
                    start = begin(self.steps, start - 1)
                depth, made = 0, True
            elif name in _ATTRIBUTES:
                if step.argval in _MAKING:
                    made = True
                elif step.argval not in _GIVING:
                    method = step.argval in _OF_CONTAINERS and step.argval not in _BLIND_METHODS
                    return Use.HASHES if method else Use.NONE
                depth = given(step, 1) - 1  # a method lies below the object that it is called on
            elif name in CALLS:
                if depth < step.argval:
                    called = self._called(at, start)
                    if called in _BLIND_CALLS:
                        return Use.NONE
                    if called in _GOING:
                        return Use.HASHES if made or self._body.makes_sets else Use.ORDER
                    if called in _COPYING:
                        made, start = True, None if start is None else start - 1
                    else:
                        other = True
                depth = 0
            elif name == "STORE_FAST":
                return self._variable(step.argval, LOCALS, made)
            elif name == "STORE_DEREF":
                return self._variable(step.argval, CELLS, made)
            elif name == "RETURN_VALUE" and not made:
                self.further.add(self._body.code.co_name)
                self.returned.add(self._body.code.co_name)
                return Use.NONE
            elif name in ("STORE_ATTR", "STORE_NAME", "STORE_GLOBAL"):
                if name != "STORE_ATTR" or depth:  # else it is the object whose attribute is set
                    self.further.add(step.argval)
                    self.remade |= made
                return Use.NONE
            elif name in _HOLDING:
                start, depth = None, 0
            else:
                return Use.HASHES
        return Use.HASHES

    def _called(self, at: int, start: int | None) -> str:
        """The builtin that is called with a value as its first argument; of those that take no others by name."""
        if start is None or start < 1 or self.steps[at - 1].opname == "KW_NAMES":
            return ""
        before = start - 1
        if self.steps[before].opname == "PUSH_NULL":
            before -= 1
        step = self.steps[before]
        if before < 0 or step.opname not in GLOBALS:
            return ""
        name = str(step.argval)
        value = self._body.scope.get(name, getattr(builtins, name, None))
        return name if value is getattr(builtins, name, ...) else ""

    def _only_tells(self, at: int) -> bool:
        """Is what lies on the stack after a step a text, or what a function gave back that has only told of a value?"""
        step = self.steps[at]
        if step.opname not in CALLS:
            return step.opname in _TEXTS
        left, before = step.argval, at - 1  # of its arguments, from the last one
        while left > 0 and before >= 0:
            takes = None if "JUMP" in self.steps[before].opname else taken(self.steps[before])
            if takes is None:
                return False
            left += takes - given(self.steps[before], takes)
            before -= 1
        if before >= 0 and self.steps[before].opname == "PUSH_NULL":
            before -= 1
        return left == 0 and before >= 0 and self.steps[before].argval in _TELLING

    def _variable(self, name: str, loads: Collection[str], made: bool) -> Use:
        """What is made of what a variable holds, here and in functions inside."""
        if (name, made) in self._variables:
            return Use.NONE
        self._variables.add((name, made))
        found = Use.NONE
        for at, step in enumerate(self.steps):
            if step.opname in loads and step.argval == name:
                found = max(found, self.follow(at, 0, at, made))
        if loads is CELLS:
            for each in (each for each in self._body.inside if name in each.code.co_freevars):
                follower = Follower(each)
                found = max(found, follower._variable(name, loads, made))
                if follower.further:
                    return Use.HASHES
        return found


def begin(steps: Steps, at: int) -> int | None:
    """Where the expression begins whose value an instruction gives; None where a jump leads into it."""
    left, last = 1, at
    while at >= 0:
        if at in steps.begins:
            at = steps.begins[at]  # a comprehension takes an iterable, and gives one value
        else:
            takes = None if at != last and "JUMP" in steps[at].opname else taken(steps[at])
            if takes is None:
                return None
            left += takes - (1 if at == last else given(steps[at], takes))
        if not left:
            return at
        if at in steps.targets:
            return None
        at -= 1
    return None


def taken(step: dis.Instruction) -> int | None:
    """How many values an instruction takes from the stack; None where it may go elsewhere, or is not known."""
    name, argument = step.opname, step.arg or 0
    if name in _NOTHING:
        return 0
    if name in _TAKES:
        return _TAKES[name]
    if name in _MORE:
        each, more = _MORE[name]
        return argument * each + more
    if name == "FORMAT_VALUE":
        return 1 + (argument & 4 == 4)
    if name == "MAKE_FUNCTION":
        return 1 + NAMED + bin(argument).count("1")
    if name.startswith("UNARY_") or (name.startswith("POP_JUMP")):
        return 1
    return 2 if name.startswith(("BINARY_", "INPLACE_")) else None


def given(step: dis.Instruction, takes: int) -> int:
    """How many it puts there, having taken so many."""
    if step.opname in CALLS or step.opname in ("CALL_KW", "CALL_FUNCTION_KW"):
        return 1  # with what another instruction takes before it
    return takes + dis.stack_effect(step.opcode, step.arg, jump=False)


def sign(step: dis.Instruction) -> str:
    """Of an operator between two sets; empty for any other instruction."""
    kind, _, name = step.opname.partition("_")
    if kind not in ("BINARY", "INPLACE"):
        return ""
    return _SIGNS.get(name, "") or next((each for each in _SIGNS.values() if each in step.argrepr), "")


def is_subscript(step: dis.Instruction) -> bool:
    return step.opname == "BINARY_SUBSCR" or step.argrepr == "[]"

