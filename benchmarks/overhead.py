"""Cost of the decorator per call, above the bare engine's `run` with ready arrays.

Goals: 12 us for a method of one tensor, plus 300 ns per weight and 20 ns per guarded attribute; less than
torch.compile's for the same layer. The engine folds the weights and attributes of these layers into one constant, so
its own time does not grow with their number, and what grows is the decorator's.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import hybrid_infer
from benchmarks import _bare, _measure, _subject, models

COUNTS = (0, 50, 200)
BLOCK_S = 0.02


def layer(weights: int, attributes: int) -> Any:
    """A layer whose forward adds to one tensor the sum of all its weights and attributes, spelled out."""
    import torch

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for index in range(weights):
                self.register_parameter(f"weight{index}", torch.nn.Parameter(torch.ones(2)))
            for index in range(attributes):
                setattr(self, f"attribute{index}", float(index))

        def forward(self, x: Any) -> Any:
            total = 1.0
            for index in range(attributes):
                total += getattr(self, f"attribute{index}")
            bias = total
            for index in range(weights):
                bias = bias + getattr(self, f"weight{index}")
            return x + bias

    return Tiny().eval()


def forms(weights: int, attributes: int, folder: Path) -> dict[str, _measure.Run]:
    """The decorated layer and the bare session on its hand-made graph, each ready to be called."""
    import torch

    workload = models.Workload(layer(weights, attributes), args=(torch.ones(2),))
    case = models.Case("tiny", "torch", lambda: workload)
    path = _bare.export(case, models.Workload(layer(weights, attributes), workload.args), folder)
    session = _bare.session(path, 1)
    feed = _bare.feed(session, workload.tensors())
    fast = hybrid_infer.inference(workload.layer, backend="onnxruntime")
    x = workload.args[0]
    for _ in range(2):
        fast(x)
    return {"decorated": lambda: fast(x), "bare": lambda: session.run(None, feed)}


def measure(rounds: int) -> dict[str, Any]:
    import torch

    plain, x = layer(0, 0), torch.ones(2)
    compiled = torch.compile(layer(0, 0))
    cases = [(0, 0), *((count, 0) for count in COUNTS[1:]), *((0, count) for count in COUNTS[1:])]
    with _measure.store(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        compiled(x)
        runs: dict[str, _measure.Run] = {"eager": lambda: plain(x), "torch.compile": lambda: compiled(x)}
        for weights, attributes in cases:
            for name, run in forms(weights, attributes, Path(folder)).items():
                runs[f"{name} {weights} {attributes}"] = run
        seconds = _measure.in_turn(runs, rounds, BLOCK_S)

    def above(weights: int, attributes: int) -> list[float]:
        key = f"{weights} {attributes}"
        return [a - b for a, b in zip(seconds[f"decorated {key}"], seconds[f"bare {key}"], strict=True)]

    base, last = above(0, 0), COUNTS[-1]
    return {
        "eager": seconds["eager"],
        "torch.compile": [c - e for c, e in zip(seconds["torch.compile"], seconds["eager"], strict=True)],
        "base": base,
        "per_weight": [(many - none) / last for many, none in zip(above(last, 0), base, strict=True)],
        "per_attribute": [(many - none) / last for many, none in zip(above(0, last), base, strict=True)],
        "seconds": seconds,
        "fallbacks": _subject.fallbacks(),
    }


def show(result: dict[str, Any]) -> str:
    rows = [
        ("eager call", _measure.spread_text(result["eager"], 1e6, 2), "us", ""),
        ("decorated, above the bare engine's run", _measure.spread_text(result["base"], 1e6, 2), "us", "12"),
        ("  more per weight", _measure.spread_text(result["per_weight"], 1e9, 0), "ns", "300"),
        ("  more per attribute", _measure.spread_text(result["per_attribute"], 1e9, 0), "ns", "20"),
        ("decorated call", _measure.spread_text(result["seconds"]["decorated 0 0"], 1e6, 2), "us", "the next line"),
        ("torch.compile, call", _measure.spread_text(result["seconds"]["torch.compile"], 1e6, 2), "us", ""),
    ]
    text = _measure.table("Overhead per call", ("median (quartiles)", "", "", "at most"), rows)
    return text + "".join(f"  not served by an engine: {reason}\n" for reason in result["fallbacks"])


def main(rounds: int) -> str:
    result = _measure.child("benchmarks.overhead", "--child", "--rounds", str(rounds))
    _measure.save("overhead", {"result": result})
    return show(result)


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("--child", action="store_true", help="measure in this process, and print JSON")
    options = parser.parse_args()
    print(json.dumps(measure(options.rounds)) if options.child else main(options.rounds))
