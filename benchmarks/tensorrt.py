"""TensorRT on one NVIDIA GPU: against eager, torch.compile, the native executor and torch_tensorrt, in halves."""

from __future__ import annotations

import copy
import importlib.util
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import _measure, gpu


def missing() -> str:
    """Why nothing can be measured here; empty if it can."""
    from hybrid_infer.backends import engine

    return gpu.missing() or engine("tensorrt").missing()


def peer(layer: Any, given: Sequence[Any], kind: Any) -> gpu.Run:
    """The layer compiled by torch_tensorrt, whole."""
    import torch_tensorrt

    made = torch_tensorrt.compile(
        copy.deepcopy(layer), ir="dynamo", inputs=list(given), enabled_precisions={kind}, min_block_size=1
    )
    return lambda: made(*given)


def measure(name: str, dtype: str, batch: int, rounds: int) -> dict[str, Any]:
    """Milliseconds, first call in seconds, peak memory and error against float64 of each."""
    import torch

    import hybrid_infer

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    layer, arguments = gpu.MODELS[name](batch)
    exact = copy.deepcopy(layer).eval().double()

    def on(tensor: Any, wanted: Any) -> Any:
        return tensor.cuda().to(wanted) if tensor.is_floating_point() else tensor.cuda()

    layer = layer.eval().cuda().to(kind)
    given = [on(each, kind) for each in arguments]
    native = hybrid_infer.inference(copy.deepcopy(layer), backend="native", verify="off")
    ours = hybrid_infer.inference(copy.deepcopy(layer), with_trt=True, verify="off")
    compiled = torch.compile(copy.deepcopy(layer), mode="max-autotune")
    runs: dict[str, gpu.Run] = {
        "eager": lambda: layer(*given), "torch.compile": lambda: compiled(*given), "native": lambda: native(*given),
        "tensorrt": lambda: ours(*given),
    }  # fmt: skip
    with torch.inference_mode():
        if importlib.util.find_spec("torch_tensorrt") is not None:
            runs["torch_tensorrt"] = peer(layer, given, kind)
        build = {}
        for which, run in runs.items():
            start = time.perf_counter()
            run()
            torch.cuda.synchronize()
            build[which] = time.perf_counter() - start
        milliseconds = gpu.times(runs, rounds)
        memory = {which: gpu.peak(run) for which, run in runs.items()}
        truth = exact.cuda()(*(on(each.float().to(kind), torch.float64) for each in arguments))
        errors = {which: float((run().double() - truth).abs().max()) for which, run in runs.items()}
    (told,) = hybrid_infer.explain(ours).to_dict()["methods"]
    served = sorted({engine for version in told["versions"] for engine in version["served_by"]})
    return {"model": name, "dtype": dtype, "batch": batch, "build_s": build, "ms": milliseconds, "peak": memory,
            "error": errors, "served_by": served}  # fmt: skip


def show(results: Sequence[dict[str, Any]]) -> str:
    """Ratios to what TensorRT takes; a figure above 1 is a peer that is slower."""
    peers = ("eager", "torch.compile", "native", "torch_tensorrt")
    rows = []
    for each in results:
        median = {which: statistics.median(figures) for which, figures in each["ms"].items()}
        ratios = (f"{median[p] / median['tensorrt']:.2f}" if p in median else "-" for p in peers)
        rows.append((
            f"{each['model']}, {each['dtype']}, batch {each['batch']}", f"{median['tensorrt']:.3f}", *ratios,
            f"{each['peak']['tensorrt'] / each['peak']['eager']:.2f}", f"{each['build_s']['tensorrt']:.1f}",
            ", ".join(each["served_by"]),
        ))  # fmt: skip
    head = ("", "TensorRT, ms", *(f"over {p}" for p in peers), "memory to eager's", "first call, s", "served by")
    return _measure.table("TensorRT", head, rows)


def main(rounds: int, models: Sequence[str] = tuple(gpu.MODELS)) -> str:
    told = gpu.machine()
    print(f"{told['device']}; driver {'; '.join(told['driver'])}; CUDA {told['cuda']}; {told['date']}\n")
    with _measure.store():
        results = [measure(name, d, batch, rounds) for name in models for d in gpu.DTYPES for batch in gpu.BATCHES]
    _measure.save("tensorrt", {"gpu": told, "results": results})
    return show(results)


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("models", nargs="*", metavar="model", help=f"which of {', '.join(gpu.MODELS)} (default: all)")
    asked = parser.parse_args()
    if unknown := set(asked.models) - set(gpu.MODELS):
        parser.error(f"no model is called {', '.join(sorted(unknown))}")
    if why := missing():
        print(f"nothing was measured: {why}")
        sys.exit(0)
    print(main(asked.rounds, asked.models or tuple(gpu.MODELS)))
