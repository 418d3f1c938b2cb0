"""One row of the benchmark of a GPU: what was measured of a model, an element type and a batch, and what was not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks._gpu_peers import NATIVE


def blank(name: str, dtype: str, batch: int) -> dict[str, Any]:
    """A row of which nothing was measured.

    ``ms``, ``first_s``, ``error`` and ``peak`` by peer; ``fallbacks``: what was answered eagerly in native's place, and
    why; ``failed``: why something was not measured, by what it is.
    """
    return {
        "model": name, "dtype": dtype, "batch": batch, "first_s": {}, "ms": {}, "error": {}, "work": None,
        "floors": None, "cold_s": None, "build_s": None, "warm_s": None, "peak": {}, "fallbacks": [], "failed": {},
    }  # fmt: skip


def lost(name: str, dtype: str, batch: int, error: Exception) -> dict[str, Any]:
    """A row of which nothing was measured for that reason."""
    return {**blank(name, dtype, batch), "failed": {"all of it": f"{type(error).__name__}: {error}"}}


def put_speed(row: dict[str, Any], found: Mapping[str, Any]) -> None:
    """What `_gpu_measure.compare` found, and who answered: native has no figures where eager stood in for it."""
    eagerly = [] if NATIVE in found["failed"] and not found["fallbacks"] else _eagerly("speed", found)
    for each in ("first_s", "ms", "error"):
        row[each] = {peer: figure for peer, figure in found[each].items() if not (eagerly and peer == NATIVE)}
    row["fallbacks"] += eagerly
    row["failed"] |= found["failed"]


def put_process(row: dict[str, Any], what: str, found: Mapping[str, Any]) -> None:
    """What `benchmarks._gpu_process` found of ``what``: "eager", or native's "cold" or "warm" store."""
    if what == "eager":
        row["peak"]["eager"] = found["peak"]
        return
    if eagerly := _eagerly(f"first call, {what} store", found):
        row["fallbacks"] += eagerly
        return
    row[f"{what}_s"] = found["first_s"]
    if what == "cold":
        row["build_s"] = found["seconds"].get("build")
    else:
        row["peak"][NATIVE] = found["peak"]


def _eagerly(what: str, found: Mapping[str, Any]) -> list[str]:
    """Why calls that are native's were answered by something else; empty if they were not."""
    reasons = [f"{what}: {reason}" for reason in found["fallbacks"]]
    if not reasons and found["served_by"] != [NATIVE]:
        reasons = [f"{what}: served by {', '.join(found['served_by']) or 'no engine'}"]
    return reasons
