"""The figures of the benchmark of a GPU as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import _gpu_measure, _measure
from benchmarks._gpu_goals import label, unmet
from benchmarks._gpu_peers import BEST, COMPILED, NATIVE, PEERS


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
