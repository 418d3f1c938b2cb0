"""The figures of the benchmark of a GPU as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import _gpu_measure, _measure
from benchmarks._gpu_goals import label, over, unmet
from benchmarks._gpu_peers import BEST, COMPILED, NATIVE, PEERS


def text(figure: float | None, form: str = ".2f") -> str:
    """A figure, or a dash where there is none."""
    return "-" if figure is None else f"{figure:{form}}"


def show(results: Sequence[Mapping[str, Any]]) -> str:
    """Three tables: speed against the peers, floors, and what else is asked; then the goals that are not met.

    What was not measured is a dash.
    """
    speeds, ceilings, others = [], [], []
    for row in results:
        ms, name = _gpu_measure.medians(row), label(row)
        speeds.append((
            name, *(text(ms.get(peer), ".3f") for peer in ("eager", *PEERS)),
            *(text(over(ms.get(peer), ms.get(NATIVE))) for peer in ("eager", COMPILED, BEST)),
        ))  # fmt: skip
        floors, work = row["floors"] or {}, row["work"] or {}
        ceilings.append((
            name, text(over(work.get("nbytes"), 1e6), ".1f"), text(over(work.get("operations"), 1e9), ".1f"),
            text(floors.get("bytes"), ".3f"), text(floors.get("arithmetic"), ".3f"),
            text(over(ms.get(NATIVE), floors.get("floor"))),
        ))  # fmt: skip
        peak, errors = row["peak"], row["error"]
        others.append((
            name, *(text(over(peak.get(each), 2**20), ".0f") for each in ("eager", NATIVE)),
            *(text(errors.get(each), ".2e") for each in ("eager", NATIVE)),
            *(text(row[each]) for each in ("cold_s", "build_s", "warm_s")),
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
