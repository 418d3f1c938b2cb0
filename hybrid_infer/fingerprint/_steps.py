"""Instructions of code as those read them who follow a value through it: each for one variable, in every Python.

From Python 3.13 on some load or store two at once, and what a function inside has of the variables around it is loaded
as variables are: it is LOAD_CLOSURE here, as before. From 3.12 on comprehensions stand inside the function that has
them: what lies on the stack before one goes through it untouched, as through a call.
"""

from __future__ import annotations

import dis
import opcode
import re
from collections.abc import Sequence
from types import CodeType

_SKIPPED = frozenset({"CACHE", "EXTENDED_ARG", "PRECALL", "NOP", "RESUME", "NOT_TAKEN", "COPY_FREE_VARS", "MAKE_CELL"})
_CLEARS = "LOAD_FAST_AND_CLEAR"
#: By which a global is loaded.
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW"})
#: What the instructions for two variables do, one after the other.
_PAIRS: dict[str, list[str]] = {
    name: re.findall("(?:LOAD|STORE)_FAST(?:_BORROW)?", name) for name in opcode.opmap if name.count("_FAST") == 2
}


class Steps(list[dis.Instruction]):
    """The instructions of a piece of code, without those that do nothing to a value.

    ``targets``: the places that a jump leads to. ``inlined``: of each comprehension that stands inside, the first place
    behind the iterable, which lies on top of the stack then, and the last one, after which its result does.
    """

    def __init__(self, code: CodeType) -> None:
        super().__init__()
        self.targets: set[int] = set()
        led, cells = False, {*code.co_cellvars, *code.co_freevars}
        for each in dis.get_instructions(code):
            led |= each.is_jump_target
            if each.opname in _SKIPPED:
                continue
            if led:
                self.targets.add(len(self))
                led = False
            self.extend(_closure(one) if one.argval in cells else one for one in _apart(each))
        self.inlined: dict[int, int] = {}
        self._variables: list[tuple[int, int, set[str]]] = []
        self._restoring: set[int] = set()
        if any(each.opname == _CLEARS for each in self):
            self._find_inlined()
        self.begins = {last: first for first, last in self.inlined.items()}

    def of_comprehension(self, at: int) -> bool:
        """Is the variable that is loaded or stored here one of a comprehension, or put back behind it?"""
        name = self[at].argval
        return at in self._restoring or any(first <= at <= last and name in own for first, last, own in self._variables)

    def _find_inlined(self) -> None:
        for at in range(1, len(self)):
            if self[at].opname != _CLEARS or self[at - 1].opname == _CLEARS:
                continue
            opens = at
            while self[opens].opname in (_CLEARS, "SWAP") or self[opens].opname.startswith("BUILD_"):
                opens += 1
            own = {each.argval for each in self[at:opens] if each.opname == _CLEARS}
            # Not one of an asynchronous loop, which nothing is known of.
            if self[opens].opname == "FOR_ITER":
                self._note_inlined(at, next(n for n in range(opens, len(self)) if self._leads(opens, n)), own)
        for at, step in enumerate(self):
            if step.opname == "RERAISE":  # where an error puts back what a comprehension had cleared
                first = at
                while first and self[first - 1].opname == "STORE_FAST":
                    first -= 1
                if self[first - 1].opname == "SWAP":
                    self._restoring.update(range(first, at))

    def _leads(self, jump: int, at: int) -> bool:
        return bool(self[at].offset >= self[jump].argval)

    def _note_inlined(self, at: int, end: int, own: set[str]) -> None:
        """One that begins here, with variables of its own, and whose loop ends there."""
        end += self[end + 1].opname == "POP_TOP"  # the iterator (3.13)
        # Where the result is stored at once, that is done first.
        swapped = self[end + 1].opname == "SWAP"
        stores = range(end + 2, end + 2 + len(own))
        if all(self[n].opname == "STORE_FAST" for n in stores):
            self.inlined[at] = stores[-1] if swapped else end
            self._restoring.update(stores)
            self._variables.append((at, end, own))


def paddle_passes(steps: Sequence[dis.Instruction]) -> set[int]:
    """The places of what names the function by which Paddle passes on each variable of code that it has rewritten."""
    found = (at for at, step in enumerate(steps) if step.argval == "Ld" and steps[at - 1].argval == "_jst")
    return {place for at in found for place in (at - 1, at)}


def _apart(step: dis.Instruction) -> list[dis.Instruction]:
    """An instruction for two variables as two."""
    if step.opname not in _PAIRS or step.arg is None:
        return [step]
    return [
        step._replace(opname=name, opcode=opcode.opmap[name], arg=arg, argval=argval, argrepr=argval)
        for name, arg, argval in zip(_PAIRS[step.opname], divmod(step.arg, 16), step.argval, strict=True)
    ]


def _closure(step: dis.Instruction) -> dis.Instruction:
    """The same of an instruction on a variable that a function inside has too."""
    return step._replace(opname="LOAD_CLOSURE") if step.opname in _LOADS else step
