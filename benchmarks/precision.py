"""bfloat16: a decorated method with ``precision_mode="bfloat16"`` against eager in float32, the method alone."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from typing import Any

import hybrid_infer
from benchmarks import _each_model, _measure, _subject, models

PRECISIONS = ("float32", "bfloat16")


def measure(case: models.Case, rounds: int) -> dict[str, Any]:
    logging.disable(logging.WARNING)
    with _measure.store(), _subject.no_grad(case.framework):
        plain = case.build()
        methods, hot = {"eager": plain.method()}, {}
        for precision in PRECISIONS:
            hot[precision] = case.build()
            hybrid_infer.inference(hot[precision].layer, backend="auto", precision_mode=precision)
            methods[precision] = hot[precision].method()
        tensors = plain.tensors()
        expected = methods["eager"](*tensors)
        found = {name: [method(*tensors) for _ in range(3)][-1] for name, method in methods.items()}
        seconds = _measure.in_turn({name: lambda m=m: m(*tensors) for name, m in methods.items()}, rounds)
        largest = float(expected.abs().max())
        return {
            "model": case.name,
            "framework": case.framework,
            "over_eager": {name: _measure.ratio(seconds["eager"], seconds[name]) for name in PRECISIONS},
            "error": {name: float((found[name] - expected).abs().max()) / largest for name in PRECISIONS},
            "served": ", ".join(_subject.served(hot[precision].layer) for precision in PRECISIONS),
        }


def show(results: Sequence[dict[str, Any]]) -> str:
    rows = []
    for result in results:
        speeds = [_measure.ratio_text(result["over_eager"][name]) for name in PRECISIONS]
        errors = [f"{result['error'][name]:.0e}" for name in PRECISIONS]
        rows.append((result["model"], *speeds, *errors, result["served"]))
    for framework in ("torch", "paddle"):
        found = [result["over_eager"] for result in results if result["framework"] == framework]
        if found:
            means = [f"{statistics.geometric_mean(each[name]['ratio'] for each in found):.2f}" for name in PRECISIONS]
            rows.append((f"geometric mean, {framework}", *means, "", "", ""))
    head = ("over eager in float32", *PRECISIONS, "its error", "its error", "served by")
    return _measure.table("bfloat16, the method alone; largest error over largest value", head, rows)


def main(rounds: int) -> str:
    return show(_each_model.measure_all("precision", rounds))


if __name__ == "__main__":
    _each_model.command_line(__doc__ or "", measure, main)
