"""On one NVIDIA GPU: eager, torch.compile in its default and its best mode, and the native engine, in half precision.

Speed is measured in turn in one process; memory and first calls each in a process of its own. The device, the driver
and all versions are printed first, what the hardware allows and the goals beside the figures; the page of the
documentation is written from them.
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import hybrid_infer
from benchmarks import _floors, _gpu_measure, _gpu_page, _gpu_peers, _gpu_row, _gpu_served, _measure
from benchmarks._gpu_goals import label
from benchmarks._gpu_machine import described, machine, missing
from benchmarks._gpu_models import MODELS
from benchmarks._gpu_peers import NATIVE, PEERS
from benchmarks._gpu_tables import show

DTYPES = ("float16", "bfloat16")
BATCHES = (1, 8)


def measure(name: str, dtype: str, batch: int, rounds: int, device: str) -> dict[str, Any]:
    """One row of the tables: speeds and errors, the floors, then memory and first calls from processes of their own."""
    import torch

    row = _gpu_row.blank(name, dtype, batch)
    torch.manual_seed(0)
    model = MODELS[name]
    layer = model.layer()
    kind = getattr(torch, dtype)
    given = [each.to(kind) if each.is_floating_point() else each for each in model.arguments(batch)]
    work = _floors.work(copy.deepcopy(layer).eval().to(kind), given)
    ceiling = _floors.roof(device)
    row["work"], row["floors"] = work._asdict(), None if ceiling is None else _floors.floors(work, ceiling)
    ours: list[Any] = []

    def native(layer: Any, given: Sequence[Any]) -> Any:
        ours.append(_gpu_peers.native(layer, given))
        return ours[-1]

    hybrid_infer.reset_stats()
    with _measure.store():
        found = _gpu_measure.compare(layer, lambda: model.arguments(batch), dtype, {**PEERS, NATIVE: native}, rounds)
        _gpu_row.put_speed(row, {**found, **_gpu_served.served(ours[-1])})
    arguments = ("--model", name, "--dtype", dtype, "--batch", str(batch), "--form")
    with _measure.store():
        for what, form in (("eager", "eager"), ("cold", NATIVE), ("warm", NATIVE)):
            _gpu_row.put_process(row, what, _measure.child("benchmarks._gpu_process", *arguments, form))
    return row


def not_run(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows of the whole benchmark that are not among these."""
    done = {label(row) for row in results}
    every = itertools.product(MODELS, DTYPES, BATCHES)
    names = [label({"model": model, "dtype": dtype, "batch": batch}) for model, dtype, batch in every]
    return [name for name in names if name not in done]


def main(rounds: int, models: Sequence[str] = tuple(MODELS)) -> str:
    told = machine()
    print(described(told))
    results = [
        measure(name, dtype, batch, rounds, told["name"]) for name in models for dtype in DTYPES for batch in BATCHES
    ]
    _measure.save("gpu", {"gpu": told, "results": results})
    text = show(results)
    _gpu_page.write(described(told), told["date"], text, not_run(results))
    return text


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("models", nargs="*", metavar="model", help=f"which of {', '.join(MODELS)} (default: all)")
    asked = parser.parse_args()
    if unknown := set(asked.models) - set(MODELS):
        parser.error(f"no model is called {', '.join(sorted(unknown))}")
    if why := missing():
        print(f"nothing was measured: {why}")
        sys.exit(0)
    print(main(asked.rounds, asked.models or tuple(MODELS)))
