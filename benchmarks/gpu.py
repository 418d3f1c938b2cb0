"""On one NVIDIA GPU: eager, torch.compile in its default and its best mode, and the native engine, in half precision.

Speed is measured in turn in one process; memory and first calls each in a process of its own. The device, the driver
and all versions are printed first, what the hardware allows and the goals beside the figures; the page of the
documentation is written from them.
"""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from benchmarks import _floors, _gpu_measure, _gpu_page, _measure
from benchmarks._gpu_models import MODELS

DTYPES = ("float16", "bfloat16")
BATCHES = (1, 8)
PACKAGES = (
    "hybrid_infer", "torch", "nvmath-python", "nvidia-cudnn-frontend", "nvidia-cuda-nvrtc", "cuda-bindings",
    "cupy-cuda13x", "cupy-cuda12x",
)  # fmt: skip

#: What every one of the goals is measured against.
COMPILED, BEST, NATIVE = "torch.compile", "max-autotune", "native"


def missing() -> str:
    """Why nothing can be measured here; empty if it can."""
    from hybrid_infer.backends.native import _driver

    if reason := _driver.missing():
        return reason
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    return "" if torch.cuda.is_available() else "PyTorch was built without CUDA, or finds no GPU"


def machine() -> dict[str, Any]:
    """Device, driver and versions."""
    import torch

    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        told = [f"nvidia-smi says nothing: {error}"]
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "device": f"{properties.name}, sm_{properties.major}{properties.minor}, "
                  f"{properties.multi_processor_count} multiprocessors",
        "driver": told, "cuda": torch.version.cuda, "versions": versions,
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def described(told: Mapping[str, Any]) -> str:
    """`machine` in words."""
    versions = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    return f"{told['device']}; driver {'; '.join(told['driver'])}; CUDA {told['cuda']}; {told['date']}\n{versions}\n"


def native(layer: Any, given: Sequence[Any]) -> Any:
    import hybrid_infer

    return hybrid_infer.inference(layer, backend="native", verify="off")


def compiled(mode: str | None) -> _gpu_measure.Peer:
    """torch's compiler in a mode; in its best one it replays CUDA graphs too."""

    def make(layer: Any, given: Sequence[Any]) -> Any:
        import torch

        return torch.compile(layer, mode=mode)

    return make


PEERS: Mapping[str, _gpu_measure.Peer] = {COMPILED: compiled(None), BEST: compiled("max-autotune"), NATIVE: native}


def measure(name: str, dtype: str, batch: int, rounds: int, device: str) -> dict[str, Any]:
    """One row of the tables: speeds and errors, the floors, then memory and first calls from processes of their own."""
    import torch

    import hybrid_infer

    torch.manual_seed(0)
    model = MODELS[name]
    layer = model.layer()
    kind = getattr(torch, dtype)
    given = [each.to(kind) if each.is_floating_point() else each for each in model.arguments(batch)]
    work = _floors.work(copy.deepcopy(layer).eval().to(kind), given)
    ceiling = _floors.roof(device)
    hybrid_infer.reset_stats()
    with _measure.store():
        found = _gpu_measure.compare(layer, lambda: model.arguments(batch), dtype, PEERS, rounds)
        fallbacks = sorted({reason for each in hybrid_infer.stats().values() for reason in each["fallbacks"]})
    arguments = ("--model", name, "--dtype", dtype, "--batch", str(batch), "--form")
    with _measure.store():
        alone, cold, warm = (
            _measure.child("benchmarks._gpu_process", *arguments, form) for form in ("eager", "native", "native")
        )
    return {
        "model": name, "dtype": dtype, "batch": batch, **found,
        "work": work._asdict(), "floors": None if ceiling is None else _floors.floors(work, ceiling),
        "cold_s": cold["first_s"], "build_s": cold["seconds"].get("build", 0.0), "warm_s": warm["first_s"],
        "peak": {"eager": alone["peak"], NATIVE: warm["peak"]}, "fallbacks": fallbacks,
    }  # fmt: skip


class Goal(NamedTuple):
    """Of one figure of a row: what is reached is at least, or at most, `wanted`."""

    what: str
    figure: float
    wanted: float
    least: bool

    @property
    def met(self) -> bool:
        return self.figure >= self.wanted if self.least else self.figure <= self.wanted


def goals(row: Mapping[str, Any]) -> list[Goal]:
    """Those that a row is held to; a row that was answered eagerly meets none."""
    ms, errors = _gpu_measure.medians(row), row["error"]
    found = [
        Goal("over max-autotune", ms[BEST] / ms[NATIVE], 1.0, True),
        Goal("memory to eager's", row["peak"][NATIVE] / row["peak"]["eager"], 1.0, False),
        Goal("error to eager's", _over(errors[NATIVE], errors["eager"]), 2.0, False),
        Goal("build, cold store, s", row["build_s"], 5.0, False),
        Goal("first call, warm store, s", row["warm_s"], 0.5, False),
    ]
    if row["batch"] == 1:
        found.insert(0, Goal("over eager", ms["eager"] / ms[NATIVE], 3.0, True))
    if row["floors"] is not None and row["batch"] == 8 and MODELS[row["model"]].products:
        found.append(Goal("over the floor", ms[NATIVE] / row["floors"]["floor"], 1.25, False))
    return [each._replace(figure=float("nan")) for each in found] if row["fallbacks"] else found


def _over(error: float, eager: float) -> float:
    """How many times as large an error is: 1 where neither is any."""
    return error / eager if eager else 1.0 if error == 0 else float("inf")


def label(row: Mapping[str, Any]) -> str:
    return f"{row['model']}, {row['dtype']}, batch {row['batch']}"


def show(results: Sequence[Mapping[str, Any]]) -> str:
    """Three tables: speed against the peers, floors, and what else is asked; then the goals that are not met."""
    speeds, ceilings, others = [], [], []
    for row in results:
        ms, name = _gpu_measure.medians(row), label(row)
        speeds.append((
            name, *(f"{ms[peer]:.3f}" for peer in ("eager", *PEERS)),
            *(f"{ms[peer] / ms[NATIVE]:.2f}" for peer in ("eager", COMPILED, BEST)),
        ))  # fmt: skip
        floors, work = row["floors"], row["work"]
        ceilings.append((
            name, f"{work['nbytes'] / 1e6:.1f}", f"{work['operations'] / 1e9:.1f}",
            *(("-",) * 3 if floors is None else (
                f"{floors['bytes']:.3f}", f"{floors['arithmetic']:.3f}", f"{ms[NATIVE] / floors['floor']:.2f}"
            )),
        ))  # fmt: skip
        peak, errors = row["peak"], row["error"]
        others.append((
            name, f"{peak['eager'] / 2**20:.0f}", f"{peak[NATIVE] / 2**20:.0f}", f"{errors['eager']:.2e}",
            f"{errors[NATIVE]:.2e}", f"{row['cold_s']:.2f}", f"{row['build_s']:.2f}", f"{row['warm_s']:.2f}",
        ))  # fmt: skip
    heads = (
        ("ms, median", "eager", *PEERS, *(f"over {peer}" for peer in ("eager", COMPILED, BEST))),
        ("floors", "MB", "GFLOP", "bytes, ms", "arithmetic, ms", "native over the larger"),
        ("", "eager, MiB", "native, MiB", "eager's error", "native's", "first call, cold, s",
         "of which build", "first call, warm, s"),
    )
    titles = ("Speed", "What the hardware allows", "Peak memory, errors against float64, first calls")
    tables = [_measure.table(*each) for each in zip(titles, heads, (speeds, ceilings, others), strict=True)]
    return "\n".join([*tables, unmet(results)])


def unmet(results: Sequence[Mapping[str, Any]]) -> str:
    """The goals that a row does not meet, one line each, and what of a row was not served."""
    lines = []
    for row in results:
        lines += [f"  {label(row)}: answered eagerly: {reason}" for reason in row["fallbacks"]]
        lines += [
            f"  {label(row)}: {each.what} {each.figure:.2f}, where {'at least' if each.least else 'at most'} "
            f"{each.wanted:g} is the goal"
            for each in goals(row) if not each.met and not row["fallbacks"]
        ]  # fmt: skip
    return "\n".join(["Goals that are not met", "", *(lines or ["  none"]), ""])


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
