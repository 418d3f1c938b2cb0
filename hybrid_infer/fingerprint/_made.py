"""Sets that code makes while it runs, of other values than constants, and goes through: of what are they made?

Where only names of attributes and globals lead there, what these hold tells whether its order is another one in each
process. Where a set is made of arguments, of what a function gives back or of texts that are put together, it may be.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from hybrid_infer.fingerprint import _iteration
from hybrid_infer.fingerprint._iteration import Body, Use
from hybrid_infer.fingerprint._steps import GLOBALS, Steps

_SETS = frozenset({"set", "frozenset"})
#: Builtins that give what they are given, and those that give numbers.
_SAME = frozenset({*_SETS, "list", "tuple", "sorted", "reversed", "iter", "next", "enumerate", "zip"})
_NUMBERS = frozenset({"range", "len", "int", "float", "bool", "abs", "round", "sum"})
#: Attributes that are numbers, or methods that give some; and methods that give what a container holds.
_SIZES = frozenset({"shape", "ndim", "dim", "size", "numel"})
_METHODS = frozenset({"keys", "values", "items", "union", "intersection", "difference", "symmetric_difference", "copy"})
_VIEWS = frozenset({"keys", "items"})
_COMPARING = frozenset({"isdisjoint", "issubset", "issuperset"})
#: Those by which more is put into a set, or that give one with more.
_FILLING = frozenset({"add", "update", "union", "symmetric_difference", "symmetric_difference_update"})
_TEXTS = frozenset({"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BUILD_STRING", "CONVERT_VALUE"})
_BEFORE = frozenset({"PUSH_NULL", "LOAD_CLOSURE", "BUILD_TUPLE"})
_CODES = ("<setcomp>", "<genexpr>", "<listcomp>", "<dictcomp>")
_BUILD_SET = dis.opmap["BUILD_SET"]


def of(body: Body, of_name: Callable[[str], Use | None]) -> Iterator[frozenset[str] | None]:
    """For each set that a body makes and whose order may count, the names that lead to its elements; None for any.

    `of_name` tells what is made of what has another name, as of what the body gives back.

    >>> def body(function): return Body(function.__code__, {})
    >>> [*of(body(lambda self: [n for n in set(self.names)]), lambda name: None)]
    [frozenset({'names'})]
    >>> [*of(body(lambda self: sorted(set(self.names)) + [len({*self.names})]), lambda name: None)]
    []
    >>> [*of(body(lambda self, names: [n for n in set(names)]), lambda name: None)]
    [None]
    """
    if body.code.co_name in _iteration.TOLD or not may_make(body.code):
        return
    for start, end in _sites(body):
        if _asked(body.steps, start, end):
            continue
        follower = _iteration.Follower(body)
        if follower.follow(end, 0, start) or any(map(of_name, follower.further)):
            found = None if start is None or _is_filled(body, start, end) else _names(body, start, end, set())
            yield None if found is None else frozenset(found)


def may_make(code: types.CodeType) -> bool:
    """May it make a set? Most code makes none, and to read its instructions takes a hundred times as long as this."""
    return (
        not (_SETS | _VIEWS).isdisjoint(code.co_names)
        or _BUILD_SET in code.co_code[::2]
        or any(isinstance(each, types.CodeType) and each.co_name == "<setcomp>" for each in code.co_consts)
    )


def _is_filled(body: Body, start: int, end: int) -> bool:
    """Is there more in it than its expression has put there? An empty one is filled, if its order counts."""
    steps = body.steps
    if steps[end].opname in _iteration.CALLS and not steps[end].arg and end - start <= 2:
        return True
    if end + 1 == len(steps):
        return False
    following = steps[end + 1]
    if following.opname in ("STORE_FAST", "STORE_DEREF"):
        return _fills(body, following.argval)
    return following.argval in _FILLING


def _fills(body: Body, name: str) -> bool:
    """Does code put more into the set that a variable holds, or a function inside of it?"""
    pairs = zip(body.steps, body.steps[1:], strict=False)
    here = any(
        step.opname.startswith("LOAD_") and step.argval == name and following.argval in _FILLING
        for step, following in pairs
    )
    return here or any(_fills(each, name) for each in body.inside if name in each.code.co_freevars)


def _asked(steps: Steps, start: int | None, end: int) -> bool:
    """Is it given to a method that only compares it with another set?"""
    called = end + 1 < len(steps) and steps[end + 1].opname in _iteration.CALLS and steps[end + 1].arg == 1
    return called and bool(start) and steps[(start or 0) - 1].argval in _COMPARING


def _sites(body: Body) -> Iterator[tuple[int | None, int]]:
    """The first and the last instruction of each expression that makes a set; the first is None where jumps hide it."""
    steps = body.steps
    for at, step in enumerate(steps):
        if step.argval in _SETS and _value(body, step) is getattr(builtins, str(step.argval), ...):
            end = _call(steps, at)
            if end is not None:
                yield (at - 1 if at and steps[at - 1].opname == "PUSH_NULL" else at), end
            elif "NULL" in step.argrepr:
                yield None, at
        elif step.opname in _iteration.CALLS:
            start = _iteration.begin(steps, at)
            if start is not None:
                # A function that has variables of the one around begins with them.
                first = next(each for each in steps[start:] if each.opname not in _BEFORE)
                if getattr(first.argval, "co_name", "") == "<setcomp>":
                    yield start, at
        elif step.opname == "BUILD_SET":
            inlined = next((first for first in steps.inlined if first < at and _opens(steps[first:at])), None)
            if inlined is not None:
                yield _iteration.begin(steps, inlined - 1), steps.inlined[inlined]
                continue
            start, end = _iteration.begin(steps, at), _updated(steps, at)
            if step.arg or end != at:
                yield start, end
            elif not _constant(steps, at):  # filled where it is built alone, or nobody can tell
                yield (at if body.code.co_name == "<setcomp>" else None), at
        elif _iteration.sign(step):
            right = _iteration.begin(steps, at - 1)
            start = _iteration.begin(steps, at)
            if right is not None and start is not None and (_view(steps, at - 1) or _view(steps, right - 1)):
                yield start, at


def _opens(steps: Sequence[dis.Instruction]) -> bool:
    """Does a comprehension that stands inside a function begin with these, before what it makes?"""
    return all(each.opname in ("LOAD_FAST_AND_CLEAR", "SWAP") for each in steps)


def _call(steps: Steps, at: int) -> int | None:
    """The call of the function that a step loads; None where it is not called, or nobody can tell."""
    depth = 0
    while (at := at + 1) < len(steps):
        step = steps[at]
        if at in steps.inlined:
            at = steps.inlined[at]
        elif step.opname in _iteration.CALLS and step.arg == depth:
            return at
        elif step.opname == "JUMP_FORWARD":  # behind the other side of ``a if c else b``
            at = next(n for n, each in enumerate(steps) if each.offset >= step.argval) - 1
        elif step.opname == "PUSH_NULL" and not depth:
            continue
        elif step.opname == "COPY":  # of ``a or b``
            depth += 1
        elif step.opname.startswith("JUMP_IF_"):
            depth -= 1
        else:
            takes = _iteration.taken(step)
            if takes is None or takes > depth:
                return None
            depth += _iteration.given(step, takes) - takes
    return None


def _updated(steps: Steps, at: int) -> int:
    """Where a set is complete that is written out with others in it (``{*names}``)."""
    end, depth = at, 0
    for n in range(at + 1, len(steps)):
        takes = _iteration.taken(steps[n])
        if takes is None or depth < takes:
            break
        if steps[n].opname == "SET_UPDATE" and depth == 1:
            if type(steps[n - 1].argval) is not frozenset:
                end = n
            depth = 0
            continue
        depth += _iteration.given(steps[n], takes) - takes
    return end


def _constant(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Is it a set of constants that is written out?"""
    return at + 1 < len(steps) and type(steps[at + 1].argval) is frozenset


def _view(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Is what an instruction gives a view of a dict?"""
    return steps[at].opname in _iteration.CALLS and not steps[at].arg and steps[at - 1].argval in _VIEWS


def _value(body: Body, step: dis.Instruction) -> Any:
    """What a name of a global stands for now."""
    if step.opname not in GLOBALS:
        return None
    return body.scope.get(step.argval, getattr(builtins, str(step.argval), None))


def _names(
    body: Body, start: int, end: int, variables: set[str], around: Collection[str] | None = None
) -> set[str] | None:
    """The names of attributes, globals and closures in an expression; None where something else gives its elements.

    `around`: of a function within the body that is asked about, which variables are closures of that one too.
    """
    steps, found = body.steps, set[str]()
    for at in range(start, end + 1):
        step, name = steps[at], str(steps[at].argval)
        following = steps[at + 1].opname if at + 1 < len(steps) else ""
        if step.opname in _TEXTS:
            return None
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            called = step.opname == "LOAD_METHOD" or "NULL" in step.argrepr
            if called and name not in _METHODS | _SIZES:
                return None
            if not called and name not in _SIZES:
                found.add(name)
        elif step.opname in GLOBALS:
            value = _value(body, step)
            if name in _SAME | _NUMBERS and value is getattr(builtins, name, ...):
                continue
            if callable(value):
                return None
            found.add(name)
        elif step.opname in _iteration.CELLS and name in body.code.co_freevars:
            if not _attribute(steps[at + 1 : at + 2]):
                if around is not None and name not in around:
                    return None  # a variable of the function around, whatever that holds
                found.add(name)
        elif step.opname in _iteration.LOCALS | _iteration.CELLS and following not in ("LOAD_ATTR", "LOAD_METHOD"):
            if around is not None or name in variables or steps.of_comprehension(at):
                continue
            variables.add(name)
            stores = [n for n, each in enumerate(steps) if each.opname == "STORE_FAST" and each.argval == name]
            stores = [n for n in stores if not steps.of_comprehension(n)]
            values = [(_iteration.begin(steps, n), n - 1) for n in stores]
            if not values or name in body.code.co_varnames[: body.code.co_argcount]:
                return None
            for first, last in values:
                more = None if first is None else _names(body, first, last, variables)
                if more is None:
                    return None
                found |= more
        elif step.opname == "LOAD_CONST" and following == "MAKE_FUNCTION" and _iteration.NAMED:
            continue  # its name
        elif step.opname == "LOAD_CONST" and (more := _of_constant(body, step.argval, following, around)) is not None:
            found |= more
        elif step.opname == "LOAD_CONST":
            return None
    return found


def _attribute(following: Sequence[dis.Instruction]) -> bool:
    """Is an attribute read that is no method, and by whose name what it holds is known?"""
    return any(
        each.opname == "LOAD_ATTR" and "NULL" not in each.argrepr and each.argval not in _SIZES for each in following
    )


def _of_constant(body: Body, value: Any, following: str, around: Collection[str] | None) -> set[str] | None:
    if isinstance(value, types.CodeType):
        if value.co_name not in _CODES:
            return None
        piece = next(each for each in body.inside if each.code is value)
        outer = body.code.co_freevars if around is None else around
        return _names(piece, 0, len(piece.steps) - 1, set(), frozenset(outer) & frozenset(piece.code.co_freevars))
    subscript = following in ("BINARY_SUBSCR", "BINARY_OP")
    texts = isinstance(value, (str, bytes)) and not subscript
    return None if texts or (isinstance(value, (tuple, frozenset)) and _holds_texts(value)) else set()


def _holds_texts(value: Any) -> bool:
    return any(isinstance(each, (str, bytes)) or (isinstance(each, tuple) and _holds_texts(each)) for each in value)
