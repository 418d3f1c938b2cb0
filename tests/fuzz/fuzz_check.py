"""A random program, decorated, has to do at each call what it does eagerly."""

from __future__ import annotations

import dataclasses
import gc
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_program import Kit, Program, module_of
from support import alike

import hybrid_infer

TOLERANCE = 1e-4
#: A comparison found a static model wrong, as it was built: the method is answered eagerly, but by luck. What is a view
#: or has another structure is no such case.
_REFUTED = re.compile(r"does not do what the eager method does: result \d")


@dataclass
class Outcome:
    """What the calls of a program came to."""

    problem: str = ""
    calls: int = 0
    #: Of these, the ones that raise, as eagerly.
    raised: int = 0
    #: Different sizes, element types and numbers among the arguments of the calls.
    signatures: int = 0
    counts: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.problem.partition(":")[0]


def check(program: Program, folder: Path, wrap: Callable[[Any], Any] = hybrid_infer.inference) -> Outcome:
    """Each call eagerly and decorated; then all again, by a program that finds on disk what the first one left."""
    kit = Kit(program.framework)
    path = program.write(folder)
    outcome = Outcome()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", hybrid_infer.CacheWarning)
            for life in ("first", "second"):
                module = module_of(program.source(), path)
                outcome.signatures = len({_signature(call(), kit) for call in module.CALLS})
                before = outcome.counts.get("captures", 0)
                outcome.problem = _life(module, kit, wrap, outcome)
                outcome.counts = _counts(path.stem)
                captures = outcome.counts.get("captures", 0)
                if not outcome.problem and captures > outcome.signatures + 1:
                    outcome.problem = f"captures: {captures} for {outcome.signatures} signatures"
                # What was captured for a call that raises cannot be compared, and so is not kept.
                if not outcome.problem and life == "second" and captures > before and not outcome.raised:
                    outcome.problem = f"cold: {captures - before} captures again"
                refuted = [reason for reason in outcome.counts.get("fallbacks", {}) if _REFUTED.search(reason)]
                if not outcome.problem and refuted:
                    outcome.problem = f"refuted: {refuted[0]}"
                if outcome.problem:
                    outcome.problem += f" (in the {life} life)"
                    break
    finally:
        del sys.modules[path.stem]
    return outcome


def _life(module: Any, kit: Kit, wrap: Callable[[Any], Any], outcome: Outcome) -> str:
    """What is wrong with the first call that is."""
    eager, hot = module.Program(), module.Program()
    eager.eval()
    hot.eval()
    served = wrap(hot)
    kept, seed = [], None
    for number, (call, drawn) in enumerate(zip(module.CALLS, module.WEIGHTS, strict=True)):
        if drawn != seed:
            module.renew(eager, drawn)
            module.renew(hot, drawn)
            seed = drawn
        mine, its = call(), call()
        expected, found = kit.outcome(eager, mine), kit.outcome(served, its)
        outcome.calls += 1
        outcome.raised += isinstance(expected, Exception)
        problem = compared(found, expected, kit)
        if not problem:
            problem = compared(its, mine, kit) and "arguments: " + compared(its, mine, kit)
        if not problem and _given(found, its, kit) != _given(expected, mine, kit):
            problem = "identity: another argument, or none, comes back as the same object"
        if problem:
            return f"{problem}, at call {number}"
        kept.append((number, found, expected))
    for number, found, expected in kept:
        if problem := compared(found, expected, kit):
            return f"overwritten: {problem}, in the result of call {number} after the last call"
    hybrid_infer.release(hot)
    gc.collect()
    return ""


def compared(found: Any, expected: Any, kit: Kit) -> str:
    """How a result, or what a call left of its arguments, differs from the eager one; empty where it does not."""
    if isinstance(expected, Exception) or isinstance(found, Exception):
        if type(found) is type(expected):
            return ""
        if not isinstance(found, Exception):
            return f"answered: where eager raises {type(expected).__name__}: {expected}"
        own = "".join(traceback.format_exception(found))
        return f"raised: {type(found).__name__}, eager {_shown(expected)}: {found}\n{own}"
    try:
        alike(_plain(found), _plain(expected), kit.tensor, lambda mine, its: _close(mine, its, kit))
    except AssertionError as error:
        return f"wrong: {error}".rstrip()
    return ""


def _close(mine: Any, eager: Any, kit: Kit) -> None:
    assert mine.dtype == eager.dtype, f"{mine.dtype} instead of {eager.dtype}"
    assert list(mine.shape) == list(eager.shape), f"shape {list(mine.shape)} instead of {list(eager.shape)}"
    left, right = kit.array(mine), kit.array(eager)
    if right.dtype.kind != "f":
        assert np.array_equal(left, right), f"{left} instead of {right}"
        return
    size = np.abs(right[np.isfinite(right)]).max(initial=1.0)
    assert np.allclose(left, right, rtol=TOLERANCE, atol=TOLERANCE * size, equal_nan=True), f"{left} instead of {right}"


def _plain(value: Any) -> Any:
    """The program's own objects as dicts, which `alike` compares."""
    if type(value).__name__ == "State":
        return {"State": _plain(vars(value))}
    if type(value) in (list, tuple):
        return type(value)(_plain(each) for each in value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value


def _shown(value: Any) -> str:
    return f"raises {type(value).__name__}: {value}" if isinstance(value, Exception) else "answers"


def _given(result: Any, arguments: Any, kit: Kit) -> list[int | None]:
    """Which tensor of the arguments each tensor of a result is."""
    places = {
        id(leaf): at for at, leaf in reversed(list(enumerate(kit.leaves(arguments)))) if isinstance(leaf, kit.tensor)
    }
    return [places.get(id(leaf)) for leaf in kit.leaves(result)]


def _signature(arguments: Any, kit: Kit) -> str:
    return repr([
        (str(leaf.dtype), list(leaf.shape)) if isinstance(leaf, kit.tensor) else leaf for leaf in kit.leaves(arguments)
    ])  # fmt: skip


def _counts(module: str) -> dict[str, Any]:
    return next((found for name, found in hybrid_infer.stats().items() if name.startswith(module + ".")), {})


def shrunk(
    program: Program, folder: Path, kind: str, seconds: float, wrap: Callable[[Any], Any] = hybrid_infer.inference
) -> Program:
    """The program with as few statements, results and calls as still have a problem of this kind."""
    end = time.monotonic() + seconds
    again = True
    while again:
        again = False
        for smaller in _smaller(program):
            if time.monotonic() > end:
                return program
            if _still(smaller, folder, kind, wrap):
                program, again = smaller, True
                break
    return program


def _still(program: Program, folder: Path, kind: str, wrap: Callable[[Any], Any]) -> bool:
    kit = Kit(program.framework)
    try:
        if isinstance(program.run(kit)[0], Exception):
            return False
        return check(program, folder, wrap).kind == kind
    except SyntaxError:
        return False


def _smaller(program: Program) -> Iterator[Program]:
    for at in reversed(range(len(program.calls))):
        if len(program.calls) > 1:
            yield dataclasses.replace(program, calls=_without(program.calls, at), weights=_without(program.weights, at))
    for name in program.returned:
        if len(program.returned) > 1:
            yield dataclasses.replace(program, returned=[each for each in program.returned if each != name])
    for at in reversed(range(len(program.statements))):
        if not any(program.statements[at].name in each for each in program.returned):
            yield dataclasses.replace(program, statements=_without(program.statements, at))


def _without(items: list[Any], at: int) -> list[Any]:
    return items[:at] + items[at + 1 :]
