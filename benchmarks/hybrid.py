"""The whole program: the method in turn with an equal amount of eager work.

If the method alone is s times as fast as eager, a program that spends half its time in it can gain 2 / (1 + 1/s); the
column "of possible" is the share of it that remains when both sides fight over the cores.
"""

from __future__ import annotations

from typing import Any

from benchmarks import _each_model, _measure, _subject, models


def measure(case: models.Case, rounds: int) -> dict[str, Any]:
    with _subject.subject(case, "auto") as subject:

        def program(method: _measure.Run) -> _measure.Run:
            def run() -> None:
                method()
                subject.work()

            return run

        forms = {"eager": subject.eager, "decorated": subject.decorated, "bare": subject.bare}
        alone = _measure.in_turn(forms, rounds)
        seconds = _measure.in_turn({name: program(method) for name, method in forms.items()}, rounds, block_s=0.2)
        speed = _measure.ratio(alone["eager"], alone["decorated"])["ratio"]
        whole = _measure.ratio(seconds["eager"], seconds["decorated"])
        return {
            "model": case.name,
            "alone": alone,
            "seconds": seconds,
            "over_eager": whole,
            "bare_over_eager": _measure.ratio(seconds["eager"], seconds["bare"]),
            "possible": 2 / (1 + 1 / speed),
            "fallbacks": _subject.fallbacks(),
        }


def show(results: list[dict[str, Any]]) -> str:
    rows = [
        (
            result["model"],
            *(_measure.spread_text(result["seconds"][name]) for name in ("eager", "decorated", "bare")),
            _measure.ratio_text(result["over_eager"]),
            _measure.ratio_text(result["bare_over_eager"]),
            f"{result['possible']:.2f}",
            f"{result['over_eager']['ratio'] / result['possible']:.0%}",
            "; ".join(result["fallbacks"]) or "engine",
        )
        for result in results
    ]
    head = (
        "ms, median (quartiles)", "eager", "decorated", "bare engine", "gain", "bare's gain", "possible", "of possible",
        "served by",
    )  # fmt: skip
    return _measure.table("Whole program, the method in turn with as much eager work", head, rows)


def main(rounds: int) -> str:
    return show(_each_model.measure_all("hybrid", rounds))


if __name__ == "__main__":
    _each_model.command_line(__doc__ or "", measure, main)
