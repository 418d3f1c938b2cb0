"""The kernels of a plan: CUDA C for every step that has one, under names that depend on what they compute alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable

from hybrid_infer.backends.native import _cuda_move, _cuda_pick, _cuda_reduce, _cuda_window
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_attention import attention
from hybrid_infer.backends.native._cuda_elementwise import elementwise
from hybrid_infer.backends.native._cuda_gemm import gemm
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
    **dict.fromkeys(_cuda_window.WINDOWS, _cuda_window.window),
    **dict.fromkeys(_cuda_reduce.FORMS, _cuda_reduce.reduction),
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


def kernels(plan: Plan) -> dict[str, Kernel]:
    """The kernels of `plan` by name. Steps without one are left out."""
    found: dict[str, Kernel] = {}
    for step in plan.steps:
        make = _GENERATED.get(step.op)
        if make is None:
            continue
        name = name_of(plan, step)
        kernel = None if name in found else make(plan, step, name)
        if kernel is not None:
            found[name] = kernel
    return found


def unit(kernels: Iterable[Kernel]) -> str:
    """One source for several kernels, each in a namespace of its own, since they share the names of their helpers."""
    headers: dict[str, None] = {}
    parts = []
    for kernel in kernels:
        lines = kernel.source.splitlines()
        headers.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        name = next(iter(kernel.entries.values())).rpartition("_")[0]
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        parts.append(f"namespace {name} {{\n{body}\n}}")
    return "\n".join([*headers, *parts, ""])
