"""TensorRT on one NVIDIA GPU: against eager, torch.compile, the native executor and torch_tensorrt, in halves."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import _gpu_child, _gpu_machine, _gpu_measure, _gpu_peers, _gpu_row, _measure, _subject, gpu
from benchmarks._gpu_goals import label, over
from benchmarks._gpu_models import MODELS
from benchmarks._gpu_tables import text


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
    row: dict[str, Any] = {**_gpu_row.blank(name, dtype, batch), "served_by": []}
    arguments = ("--model", name, "--dtype", dtype, "--batch", str(batch), "--form")
    with _measure.store():
        for found in _gpu_measure.compare(model.layer(), lambda: model.arguments(batch), dtype, peers, rounds):
            row |= found
        row["served_by"] = _subject.engines(ours[-1]) if ours else []
        for form in ("eager", "tensorrt"):
            found, why = _gpu_child.told("benchmarks._gpu_process", *arguments, form, limit=gpu.LIMIT)
            if found:
                row["peak"][form] = found["peak"]
            if why:
                row["failed"][f"memory of {form}"] = why
    return row


def show(results: Sequence[dict[str, Any]]) -> str:
    """Ratios to what TensorRT takes; a figure above 1 is a peer that is slower. A dash was not measured."""
    peers = ("eager", _gpu_peers.COMPILED, _gpu_peers.NATIVE, "torch_tensorrt")
    rows, lines = [], []
    for each in results:
        median, peak = _gpu_measure.medians(each), each["peak"]
        ours = median.get("tensorrt")
        rows.append((
            label(each), text(ours, ".3f"), *(text(over(median.get(peer), ours)) for peer in peers),
            text(over(peak.get("tensorrt"), peak.get("eager"))), text(each["first_s"].get("tensorrt"), ".1f"),
            ", ".join(each["served_by"]) or "-",
        ))  # fmt: skip
        lines += [f"  {label(each)}: {what} failed: {why}" for what, why in each["failed"].items()]
    head = ("", "TensorRT, ms", *(f"over {p}" for p in peers), "memory to eager's", "first call, s", "served by")
    return "\n".join([_measure.table("TensorRT", head, rows), *lines])


def main(rounds: int, models: Sequence[str] = tuple(MODELS)) -> str:
    told = _gpu_machine.machine()
    print(_gpu_machine.described(told), flush=True)
    results: list[dict[str, Any]] = []
    for each in gpu.rows(models):
        try:
            results.append(measure(*each, rounds))
        except Exception as error:  # of this row: the others may go through
            results.append({**_gpu_row.lost(*each, error), "served_by": []})
        _measure.save("tensorrt", {"gpu": told, "results": results})
        print(show(results[-1:]), flush=True)
    return show(results)


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("models", nargs="*", metavar="model", help=f"which of {'; '.join(MODELS)} (default: all)")
    asked = parser.parse_args()
    if unknown := set(asked.models) - set(MODELS):
        parser.error(f"no model is called {', '.join(sorted(unknown))}")
    if why := missing():
        print(f"nothing was measured: {why}")
        sys.exit(0)
    print(main(asked.rounds, asked.models or tuple(MODELS)))
