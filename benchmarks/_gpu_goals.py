"""What a row of the benchmark of a GPU is held to, and what of that it does not meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import _gpu_measure
from benchmarks._gpu_models import MODELS
from benchmarks._gpu_peers import BEST, COMPILED, NATIVE


class Goal(NamedTuple):
    """Of one figure of a row: what is reached is at least, or at most, `wanted`; None: it was not measured."""

    what: str
    figure: float | None
    wanted: float
    least: bool

    @property
    def met(self) -> bool:
        if self.figure is None:
            return False
        return self.figure >= self.wanted if self.least else self.figure <= self.wanted


def goals(row: Mapping[str, Any]) -> list[Goal]:
    """Those that a row is held to; a row of which anything was answered eagerly meets none."""
    ms, errors, peak = _gpu_measure.medians(row), row["error"], row["peak"]
    compiled = min(ms[COMPILED], ms[BEST]) if {COMPILED, BEST} <= ms.keys() else None
    found = [
        Goal("over the faster torch.compile", over(compiled, ms.get(NATIVE)), 1.0, True),
        Goal("memory to eager's", over(peak.get(NATIVE), peak.get("eager")), 1.0, False),
        Goal("error to eager's", _error(errors.get(NATIVE), errors.get("eager")), 2.0, False),
        Goal("build, cold store, s", row["build_s"], 5.0, False),
        Goal("first call, warm store, s", row["warm_s"], 0.5, False),
    ]
    if row["batch"] == 1:
        found.insert(0, Goal("over eager", over(ms.get("eager"), ms.get(NATIVE)), 3.0, True))
    if row["floors"] is not None and row["batch"] == 8 and MODELS[row["model"]].products:
        found.append(Goal("over the floor", over(ms.get(NATIVE), row["floors"]["floor"]), 1.25, False))
    return [each._replace(figure=None) for each in found] if row["fallbacks"] else found


def over(above: float | None, below: float | None) -> float | None:
    """Their ratio; None where one of them was not measured."""
    return None if above is None or below is None else above / below


def _error(error: float | None, eager: float | None) -> float | None:
    """How many times as large an error is: 1 where neither is any."""
    if not eager and error is not None and eager is not None:
        return 1.0 if error == 0 else float("inf")
    return over(error, eager)


def label(row: Mapping[str, Any]) -> str:
    return f"{row['model']}, {row['dtype']}, batch {row['batch']}"


def unmet(results: Sequence[Mapping[str, Any]]) -> str:
    """The goals that a row does not meet, one line each, and what of a row failed or was not served."""
    lines = []
    for row in results:
        lines += [f"  {label(row)}: {what} failed: {why}" for what, why in row["failed"].items()]
        lines += [f"  {label(row)}: answered eagerly: {reason}" for reason in row["fallbacks"]]
        lines += [f"  {label(row)}: {_said(each)}" for each in goals(row) if not each.met and not row["fallbacks"]]
    return "\n".join(["Goals that are not met", "", *(lines or ["  none"]), ""])


def _said(goal: Goal) -> str:
    wanted = f"{'at least' if goal.least else 'at most'} {goal.wanted:g} is the goal"
    return f"{goal.what} {'was not measured' if goal.figure is None else f'{goal.figure:.2f}'}, where {wanted}"
