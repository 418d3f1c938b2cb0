"""TensorRT on one NVIDIA GPU: against eager, torch.compile, the native executor and torch_tensorrt, in halves."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import _gpu_machine, _gpu_measure, _gpu_peers, _measure, _subject, gpu
from benchmarks._gpu_goals import label
from benchmarks._gpu_models import MODELS


def missing() -> str:
    """Why nothing can be measured here; empty if it can."""
    from hybrid_infer.backends import engine

    return _gpu_machine.missing() or engine("tensorrt").missing()


def peer(layer: Any, given: Sequence[Any]) -> Any:
    """The layer compiled by torch_tensorrt, whole."""
    import torch_tensorrt

    kinds = {each.dtype for each in layer.parameters()}
    return torch_tensorrt.compile(
        layer, ir="dynamo", inputs=list(given), enabled_precisions=kinds, min_block_size=1
    )


def measure(name: str, dtype: str, batch: int, rounds: int) -> dict[str, Any]:
    """Milliseconds, first call in seconds and error against float64 of each; peak memory in processes of their own."""
    import torch

    import hybrid_infer

    torch.manual_seed(0)
    model = MODELS[name]
    ours: list[Any] = []

    def tensorrt(layer: Any, given: Sequence[Any]) -> Any:
        ours.append(hybrid_infer.inference(layer, with_trt=True, verify="off"))
        return ours[-1]

    peers: dict[str, _gpu_measure.Peer] = {
        _gpu_peers.COMPILED: _gpu_peers.compiled("max-autotune"),
        _gpu_peers.NATIVE: _gpu_peers.native,
        "tensorrt": tensorrt,
    }
    if importlib.util.find_spec("torch_tensorrt") is not None:
        peers["torch_tensorrt"] = peer
    with _measure.store():
        found = _gpu_measure.compare(model.layer(), lambda: model.arguments(batch), dtype, peers, rounds)
        served = _subject.engines(ours[-1])
        arguments = ("--model", name, "--dtype", dtype, "--batch", str(batch), "--form")
        memory = {
            form: _measure.child("benchmarks._gpu_process", *arguments, form)["peak"] for form in ("eager", "tensorrt")
        }
    return {"model": name, "dtype": dtype, "batch": batch, **found, "peak": memory, "served_by": served}


def show(results: Sequence[dict[str, Any]]) -> str:
    """Ratios to what TensorRT takes; a figure above 1 is a peer that is slower."""
    peers = ("eager", "torch.compile", "native", "torch_tensorrt")
    rows = []
    for each in results:
        median = _gpu_measure.medians(each)
        ratios = (f"{median[p] / median['tensorrt']:.2f}" if p in median else "-" for p in peers)
        rows.append((
            label(each), f"{median['tensorrt']:.3f}", *ratios,
            f"{each['peak']['tensorrt'] / each['peak']['eager']:.2f}", f"{each['first_s']['tensorrt']:.1f}",
            ", ".join(each["served_by"]),
        ))  # fmt: skip
    head = ("", "TensorRT, ms", *(f"over {p}" for p in peers), "memory to eager's", "first call, s", "served by")
    return _measure.table("TensorRT", head, rows)


def main(rounds: int, models: Sequence[str] = tuple(MODELS)) -> str:
    told = _gpu_machine.machine()
    print(_gpu_machine.described(told))
    results = [measure(name, d, batch, rounds) for name in models for d in gpu.DTYPES for batch in gpu.BATCHES]
    _measure.save("tensorrt", {"gpu": told, "results": results})
    return show(results)


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
