"""What the hand-over of the cores gives a whole program: the method in turn with an equal amount of eager work.

If the method alone is s times as fast as eager, a program that spends half its time in it can gain 2 / (1 + 1/s); the
columns "of possible" are the share of it that remains when both sides fight over the cores. The engine is the one that
the router chooses, with and without ``core_handover``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import hybrid_infer
from benchmarks import _each_model, _measure, _subject, models

WITH, WITHOUT, EAGER = "decorated", "without the hand-over", "eager"


def measure(case: models.Case, rounds: int) -> dict[str, Any]:
    logging.disable(logging.WARNING)
    with _measure.store(), _subject.no_grad(case.framework):
        plain, work, free = case.build(), case.build(), case.build()
        hybrid_infer.inference(free.layer, backend="auto")
        for _ in range(3):
            free.call()
        engine = _subject.served(free.layer)
        forms = {EAGER: plain, WITH: free}
        if not _subject.fallbacks():
            for name, handed_over in ((WITH, True), (WITHOUT, False)):
                forms[name] = case.build()
                hybrid_infer.inference(forms[name].layer, backend=engine, core_handover=handed_over)
        runs = {name: form.call for name, form in forms.items()}
        for run in runs.values():
            run()
        alone = _measure.in_turn(runs, rounds)
        seconds = _measure.in_turn({name: _program(run, work.call) for name, run in runs.items()}, rounds, block_s=0.2)
        speed = _measure.ratio(alone[EAGER], alone[WITH])["ratio"]
        return {
            "model": case.name,
            "alone": alone,
            "seconds": seconds,
            "over_eager": {name: _measure.ratio(seconds[EAGER], seconds[name]) for name in runs if name != EAGER},
            "possible": 2 / (1 + 1 / speed),
            "served": engine,
        }


def _program(method: _measure.Run, work: _measure.Run) -> _measure.Run:
    def run() -> None:
        method()
        work()

    return run


def show(results: Sequence[dict[str, Any]]) -> str:
    rows = []
    for result in results:
        cells = [_measure.spread_text(result["seconds"][EAGER])]
        for name in (WITH, WITHOUT):
            gain = result["over_eager"].get(name)
            cells += ["-", "-"] if gain is None else [
                _measure.ratio_text(gain), f"{gain['ratio'] / result['possible']:.0%}"
            ]  # fmt: skip
        rows.append((result["model"], *cells, f"{result['possible']:.2f}", result["served"]))
    head = ("", "eager, ms", "gain", "of possible", WITHOUT, "of possible", "possible", "served by")
    return _measure.table("The hand-over of the cores: the method in turn with as much eager work", head, rows)


def main(rounds: int) -> str:
    return show(_each_model.measure_all("hybrid", rounds))


if __name__ == "__main__":
    _each_model.command_line(__doc__ or "", measure, main)
