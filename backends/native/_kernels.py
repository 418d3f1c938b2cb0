"""The kernels of a plan: CUDA C for every step that has one, under names that depend on what they compute alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable

from hybrid_infer.backends.native import (
    _cuda_move,
    _cuda_pad,
    _cuda_pick,
    _cuda_rank,
    _cuda_recurrent,
    _cuda_reduce,
    _cuda_resize,
    _cuda_scan,
    _cuda_scatter,
    _cuda_sizes,
    _cuda_window,
)
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_attention import attention
from hybrid_infer.backends.native._cuda_attention_tiles import attention_tiles
from hybrid_infer.backends.native._cuda_attention_units import attention_on_units
from hybrid_infer.backends.native._cuda_elementwise import elementwise
from hybrid_infer.backends.native._cuda_gemm import gemm
from hybrid_infer.backends.native._cuda_gemm_tiles import gemm_tiles
from hybrid_infer.backends.native._cuda_held_rows import held_rows
from hybrid_infer.backends.native._cuda_rows import rows
from hybrid_infer.backends.native._plan import Plan, Step, encode

#: What makes the kernel of each kind of step; it gives None for a step whose shapes it does not cover.
_GENERATED: dict[str, Callable[[Plan, Step, str], Kernel | None]] = {
    "elementwise": elementwise,
    "row": rows,
    "attention": attention,
    "gemm": gemm,
    "matmul": gemm,
    **dict.fromkeys(_cuda_move.MOVES, _cuda_move.move),
    **dict.fromkeys(_cuda_pick.PICKS, _cuda_pick.pick),
    **dict.fromkeys(_cuda_pad.PADS, _cuda_pad.pad),
    **dict.fromkeys(_cuda_resize.RESIZES, _cuda_resize.resize),
    **dict.fromkeys(_cuda_window.WINDOWS, _cuda_window.window),
    **dict.fromkeys(_cuda_sizes.WRITTEN, _cuda_sizes.written),
    **dict.fromkeys(_cuda_scan.SCANS, _cuda_scan.scan),
    **dict.fromkeys(_cuda_rank.RANKS, _cuda_rank.rank),
    **dict.fromkeys(_cuda_recurrent.RECURRENCES, _cuda_recurrent.recurrence),
    **dict.fromkeys(_cuda_scatter.SCATTERS, _cuda_scatter.scatter),
    **dict.fromkeys(_cuda_reduce.FORMS, _cuda_reduce.reduction),
}

#: The first architecture whose matrix units our kernels know.
_MATRIX_UNITS = 80

#: The first architecture whose blocks run in clusters and write to each other's shared memory.
_CLUSTERS = 90

#: What is tried first, on GPUs that have matrix units for the types of the step.
_ON_MATRIX_UNITS: dict[str, Callable[[Plan, Step, str], Kernel | None]] = {
    "gemm": gemm_tiles,
    "matmul": gemm_tiles,
    "attention": attention_on_units,
}


def name_of(plan: Plan, step: Step) -> str:
    """A C identifier; equal steps over equal types and shapes share it, and so the kernel, wherever they stand."""
    types = [plan.values[name].dtype for name in step.inputs if name in plan.values]
    what: list[object] = [step.op, types, encode(dict(step.attributes))]
    if step.op not in ("elementwise", "row"):
        what += [encode(plan.values[name].shape) if name in plan.values else None for name in step.outputs]
        for name in step.inputs:
            small = plan.constants.get(name)
            what.append(encode(plan.values[name].shape) if name in plan.values else None)
            what.append(small.tolist() if small is not None and small.dtype.kind == "i" and small.size < 64 else None)
    text = json.dumps(what, sort_keys=True)
    return f"{step.op.lower()}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def kernels(plan: Plan, architecture: str = "sm_80") -> dict[str, Kernel]:
    """The kernels of `plan` by name, for GPUs of that architecture. Steps without one are left out."""
    found: dict[str, Kernel] = {}
    for step in plan.steps:
        if step.op not in _GENERATED:
            continue
        name = name_of(plan, step)
        if name not in found and (made := kernel(plan, step, name, architecture)) is not None:
            found[name] = made
    return found


def kernel(plan: Plan, step: Step, name: str, architecture: str, clusters: bool = True) -> Kernel | None:
    """The kernel of a step, under that name; None where it has none. `clusters`: may blocks work in such?"""
    number = int(architecture[3:])
    if step.op == "row":
        held = held_rows(plan, step, name, clusters=clusters and number >= _CLUSTERS)
        if held is not None:
            return held
    units = _ON_MATRIX_UNITS if number >= _MATRIX_UNITS else {}
    makers = [units.get(step.op), attention_tiles if step.op == "attention" else None, _GENERATED.get(step.op)]
    return next((made for each in makers if each is not None and (made := each(plan, step, name))), None)


def unit(kernels: Iterable[Kernel]) -> str:
    """One source for several kernels, each in a namespace of its own, since they share the names of their helpers."""
    headers: dict[str, None] = {}
    parts = []
    for kernel in kernels:
        lines = kernel.source.splitlines()
        headers.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        name = kernel.names[0].rpartition("_")[0]
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        parts.append(f"namespace {name} {{\n{body}\n}}")
    return "\n".join([*headers, *parts, ""])
