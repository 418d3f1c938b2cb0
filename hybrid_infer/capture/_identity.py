"""Does code only tell objects apart by what ``id()`` gave (``if id(layer) in seen``), and forget it at the end?

The number is followed to what takes it from the stack: a comparison with another one, or a look-up in a set or dict
that the code itself has made, and of which it asks for nothing but what it holds by such keys. What is not known counts
as if it went by the number.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection

from hybrid_infer import _fork_safe
from hybrid_infer.fingerprint import _iteration
from hybrid_infer.fingerprint._iteration import CALLS, Body
from hybrid_infer.fingerprint._steps import GLOBALS

_STACK = frozenset({"COPY", "SWAP", "DUP_TOP", "DUP_TOP_TWO", "ROT_TWO", "ROT_THREE", "ROT_FOUR"})
#: How far below the top of the stack a set or dict and the key lie.
_LOOKS_UP = {"CONTAINS_OP": (0, 1), "BINARY_SUBSCR": (1, 0), "STORE_SUBSCR": (1, 0), "DELETE_SUBSCR": (1, 0)}
#: Methods that take a key first, and tell no other.
_METHODS = frozenset({"add", "discard", "remove", "get", "setdefault"})


def only_tells_apart(code: types.CodeType, offset: int) -> bool:
    """Of the call at this offset in a piece of code, which is one of ``id``."""
    numbers = _Numbers(code)
    place = next((at for at, step in enumerate(numbers.steps) if step.offset == offset), None)
    return place is not None and numbers.forgotten(place)


def handed_on(code: types.CodeType, names: Collection[str]) -> str | None:
    """Which of these builtins a piece of code gives to another function, or keeps, instead of calling it."""
    numbers = _Numbers(code)
    for at, step in enumerate(numbers.steps):
        if step.opname in GLOBALS and step.argval in names and not numbers.called(at):
            return str(step.argval)
    return None


class _Numbers:
    """Of one piece of code."""

    def __init__(self, code: types.CodeType) -> None:
        self.steps, self._code = Body(code, {}).steps, code
        self._met: set[str] = set()

    def called(self, at: int) -> bool:
        """Is what a step loads a function that is called next? From Python 3.11 on the instruction tells."""
        if "NULL" in self.steps[at].argrepr:
            return True
        at, depth = self._taker(at)
        return self.steps[at].opname == "CALL_FUNCTION" and depth == self.steps[at].arg

    def forgotten(self, at: int) -> bool:
        """Is nothing else done with what lies on top of the stack after a step?"""
        at, depth = self._taker(at)
        step = self.steps[at]
        if step.opname == "COMPARE_OP":
            return step.argval in ("==", "!=")
        if step.opname == "STORE_FAST":
            return self._is_forgotten_variable(step.argval)
        key = _LOOKS_UP[step.opname][1] if step.opname in _LOOKS_UP else (step.arg or 0) - 1
        return depth == key and at in self._look_ups

    def _is_forgotten_variable(self, name: str) -> bool:
        if name in self._met:
            return True
        self._met.add(name)
        return all(map(self.forgotten, self._loads(name)))

    @_fork_safe.cached_property
    def _look_ups(self) -> set[int]:
        """Steps that look something up in a set or dict that is empty at first and used for nothing else."""
        code = self._code
        given = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        given += bool(code.co_flags & inspect.CO_VARKEYWORDS)
        found: set[int] = set()
        for name in code.co_varnames[given:]:
            stores = [at for at, step in enumerate(self.steps) if step.opname == "STORE_FAST" and step.argval == name]
            loads = self._loads(name)
            if loads and stores and all(map(self._is_empty, stores)):
                takers = [*map(self._look_up, loads)]
                found |= set(takers) if -1 not in takers else set()
        return found

    def _is_empty(self, at: int) -> bool:
        before = self.steps[at - 1]
        if before.opname not in CALLS:
            return before.opname in ("BUILD_SET", "BUILD_MAP") and not before.arg
        called = self.steps[at - 3 if self.steps[at - 2].opname == "PUSH_NULL" else at - 2]
        return not before.arg and called.opname == "LOAD_GLOBAL" and called.argval in ("set", "dict")

    def _look_up(self, at: int) -> int:
        """The step that looks something up in the set or dict that is loaded by a step; -1 if another takes that."""
        at, depth = self._taker(at)
        step = self.steps[at]
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in _METHODS:
            at, _ = self._taker(at)
            return at if self.steps[at].opname in CALLS else -1
        return at if step.opname in _LOOKS_UP and depth == _LOOKS_UP[step.opname][0] else -1

    def _loads(self, name: str) -> list[int]:
        """The steps that load a variable."""
        steps = enumerate(self.steps)
        return [at for at, step in steps if step.opname.startswith("LOAD_FAST") and step.argval == name]

    def _taker(self, at: int) -> tuple[int, int]:
        """The step that takes the top of the stack after a step, and how far below the top it lies then.

        The last one, which takes nothing that counts, where that is not known.
        """
        depth, last = 0, len(self.steps) - 1
        while (at := at + 1) <= last:
            step = self.steps[at]
            takes = None if "JUMP" in step.opname or step.opname in _STACK else _iteration.taken(step)
            if takes is None:
                break
            if depth < takes:
                return at, depth
            depth += _iteration.given(step, takes) - takes
        return last, -1
