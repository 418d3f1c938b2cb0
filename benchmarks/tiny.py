"""Layers so small that an engine may cost more than it saves: what the router chooses, and what that costs.

Goal: no layer slower than eager, but for the few microseconds that looking at a call takes.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import hybrid_infer
from benchmarks import _measure, _subject, models

SETTLE = 200  # calls before the measurement, among them those in which engines are measured
FRAMEWORKS = ("torch", "paddle")
Layers = dict[str, tuple[Callable[[], Any], list[int]]]


def _layers(framework: str) -> tuple[Any, Layers]:
    """The framework, and layers with the shape of their argument, by name."""
    if framework == "torch":
        import torch
        from torch import nn
    else:
        torch = models.import_paddle()
        nn = torch.nn
    convolution = nn.Conv2d if framework == "torch" else nn.Conv2D
    normalisation = nn.BatchNorm2d if framework == "torch" else nn.BatchNorm2D
    return torch, {
        "linear 8": (lambda: nn.Linear(8, 8), [1, 8]),
        "linear 256": (lambda: nn.Linear(256, 256), [1, 256]),
        "layer norm 256": (lambda: nn.LayerNorm(256), [16, 256]),
        "perceptron 64": (lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), [4, 64]),
        "8 linear 32": (lambda: nn.Sequential(*(nn.Linear(32, 32) for _ in range(8))), [4, 32]),
        "convolution 8x16x16": (
            lambda: nn.Sequential(convolution(3, 8, 3, padding=1), normalisation(8), nn.ReLU()), [1, 3, 16, 16]
        ),
    }  # fmt: skip


def measure(framework: str, rounds: int) -> list[dict[str, Any]]:
    logging.disable(logging.WARNING)
    library, layers = _layers(framework)
    found = []
    with _measure.store(), _subject.no_grad(framework):
        for name, (make, shape) in layers.items():
            hybrid_infer.reset_stats()
            plain, hot, x = make(), make(), library.ones(shape)
            for layer in (plain, hot):
                layer.eval()
            hybrid_infer.inference(hot, backend="auto")
            for _ in range(SETTLE):
                hot(x)
            runs = {"eager": functools.partial(plain, x), "decorated": functools.partial(hot, x)}
            seconds = _measure.in_turn(runs, rounds)
            ratio = _measure.ratio(seconds["eager"], seconds["decorated"])
            found.append({
                "layer": f"{framework}, {name}", "seconds": seconds, "over_eager": ratio,
                "served": _subject.served(hot),
            })  # fmt: skip
    return found


def show(results: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            result["layer"],
            *(_measure.spread_text(result["seconds"][name], 1e6) for name in ("eager", "decorated")),
            _measure.ratio_text(result["over_eager"]),
            result["served"],
        )
        for result in results
    ]
    head = ("us, median (quartiles)", "eager", "decorated", "over eager", "chosen")
    return _measure.table("Tiny layers, the method alone", head, rows)


def main(rounds: int) -> str:
    found = [_measure.child("benchmarks.tiny", "--only", name, "--rounds", str(rounds)) for name in FRAMEWORKS]
    results = [result for each in found for result in each]
    _measure.save("tiny", {"results": results})
    return show(results)


def _command_line() -> None:
    parser: argparse.ArgumentParser = _measure.arguments(__doc__ or "")
    parser.add_argument("--only", choices=FRAMEWORKS, help="measure one framework in this process, and print JSON")
    options = parser.parse_args()
    print(json.dumps(measure(options.only, options.rounds)) if options.only else main(options.rounds))


if __name__ == "__main__":
    _command_line()
