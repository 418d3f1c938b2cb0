"""Everything that can happen to the values of a program."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from doors.kinds import FUNCTIONS
from doors.program import Case, Program


@dataclass(frozen=True)
class Change:
    """Something that happens to a program, and the way back; ``alters`` is false where the result stays the same."""

    name: str
    case: Case
    do: Callable[[], object]
    undo: Callable[[], object]
    alters: bool = True


def changes(program: Program) -> Iterator[Change]:
    """All changes of the values of a program, each to be undone before the next."""
    for case in program.cases:
        yield from _rebindings(program, case)
        if case.place.fallback:
            continue
        for number, (do, undo) in enumerate(case.kind.inside):
            value = program.get(case)
            yield Change(do, case, partial(program.run, value, do), partial(program.run, value, undo))
            if number == 0 and re.search(r"\bv\b", do):
                yield from _replaced(program, case, do, undo)


def _rebindings(program: Program, case: Case) -> Iterator[Change]:
    before = program.get(case)
    if case.place.fallback:
        put = partial(setattr, program.layer, case.name, before)
        yield Change("deleted", case, partial(delattr, program.layer, case.name), put)
        return
    for text in case.kind.others:
        put = partial(program.put, case, program.value(text))
        yield Change(f"bound to {text}", case, put, partial(program.put, case, before))
    registered = case.kind.name in ("parameter", "layer")  # under a name that has to be free
    if case.place.name in ("class", "base") and case.kind.others and not registered:
        put = partial(setattr, program.layer, case.name, program.value(case.kind.others[0]))
        yield Change("hidden by the instance", case, put, partial(delattr, program.layer, case.name))


def _replaced(program: Program, case: Case, do: str, undo: str) -> Iterator[Change]:
    """An equal object takes the place of another and is served; then that one is changed."""
    before = program.get(case)
    if case.kind.name in FUNCTIONS or isinstance(before, (type, ModuleType)):
        return
    try:
        value = copy.deepcopy(before)
    except Exception:
        return
    yield Change("replaced by an equal one", case, partial(program.put, case, value), lambda: None, alters=False)

    def back() -> None:
        program.run(value, undo)
        program.put(case, before)

    yield Change(f"replaced, and {do}", case, partial(program.run, value, do), back)
