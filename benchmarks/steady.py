"""Steady speed of the method alone: eager, decorated, and a bare session on a graph exported by hand.

Goal: the decorated method takes at most 1.03 times the bare engine's time.
"""

from __future__ import annotations

from typing import Any

from benchmarks import _each_model, _measure, _subject, models


def measure(case: models.Case, rounds: int) -> dict[str, Any]:
    with _subject.subject(case) as subject:
        # Apart, since the framework's threads go on spinning after an eager call and would slow the engine down.
        engines = _measure.in_turn({"decorated": subject.decorated, "bare": subject.bare}, rounds)
        seconds = _measure.in_turn({"eager": subject.eager, "decorated": subject.decorated}, rounds)
        return {
            "model": case.name,
            "seconds": {"eager": seconds["eager"], **engines},
            "over_eager": _measure.ratio(seconds["eager"], seconds["decorated"]),
            "to_bare": _measure.ratio(engines["decorated"], engines["bare"]),
            "difference": subject.difference,
            "fallbacks": _subject.fallbacks(),
        }


def show(results: list[dict[str, Any]]) -> str:
    rows = [
        (
            result["model"],
            *(_measure.spread_text(result["seconds"][name]) for name in ("eager", "decorated", "bare")),
            _measure.ratio_text(result["over_eager"]),
            _measure.ratio_text(result["to_bare"]),
            f"{result['difference']:.0e}",
            "; ".join(result["fallbacks"]) or "engine",
        )
        for result in results
    ]
    head = (
        "ms, median (quartiles)", "eager", "decorated", "bare engine", "over eager", "time to bare", "difference",
        "served by",
    )  # fmt: skip
    return _measure.table("Steady speed, the method alone", head, rows)


def main(rounds: int) -> str:
    return show(_each_model.measure_all("steady", rounds))


if __name__ == "__main__":
    _each_model.command_line(__doc__ or "", measure, main)
