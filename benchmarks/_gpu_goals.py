"""What a row of the benchmark of a GPU is held to, and what of that it does not meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import _gpu_measure
from benchmarks._gpu_models import MODELS
from benchmarks._gpu_peers import BEST, NATIVE


class Goal(NamedTuple):
    """Of one figure of a row: what is reached is at least, or at most, `wanted`."""

    what: str
    figure: float
    wanted: float
    least: bool

    @property
    def met(self) -> bool:
        return self.figure >= self.wanted if self.least else self.figure <= self.wanted


def goals(row: Mapping[str, Any]) -> list[Goal]:
    """Those that a row is held to; a row that was answered eagerly meets none."""
    ms, errors = _gpu_measure.medians(row), row["error"]
    found = [
        Goal("over max-autotune", ms[BEST] / ms[NATIVE], 1.0, True),
        Goal("memory to eager's", row["peak"][NATIVE] / row["peak"]["eager"], 1.0, False),
        Goal("error to eager's", _over(errors[NATIVE], errors["eager"]), 2.0, False),
        Goal("build, cold store, s", row["build_s"], 5.0, False),
        Goal("first call, warm store, s", row["warm_s"], 0.5, False),
    ]
    if row["batch"] == 1:
        found.insert(0, Goal("over eager", ms["eager"] / ms[NATIVE], 3.0, True))
    if row["floors"] is not None and row["batch"] == 8 and MODELS[row["model"]].products:
        found.append(Goal("over the floor", ms[NATIVE] / row["floors"]["floor"], 1.25, False))
    return [each._replace(figure=float("nan")) for each in found] if row["fallbacks"] else found


def _over(error: float, eager: float) -> float:
    """How many times as large an error is: 1 where neither is any."""
    return error / eager if eager else 1.0 if error == 0 else float("inf")


def label(row: Mapping[str, Any]) -> str:
    return f"{row['model']}, {row['dtype']}, batch {row['batch']}"


def unmet(results: Sequence[Mapping[str, Any]]) -> str:
    """The goals that a row does not meet, one line each, and what of a row was not served."""
    lines = []
    for row in results:
        lines += [f"  {label(row)}: answered eagerly: {reason}" for reason in row["fallbacks"]]
        lines += [
            f"  {label(row)}: {each.what} {each.figure:.2f}, where {'at least' if each.least else 'at most'} "
            f"{each.wanted:g} is the goal"
            for each in goals(row) if not each.met and not row["fallbacks"]
        ]  # fmt: skip
    return "\n".join(["Goals that are not met", "", *(lines or ["  none"]), ""])
