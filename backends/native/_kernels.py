"""The kernels of a plan: CUDA C for every step that has one, under names that depend on what they compute alone."""

from __future__ import annotations

import hashlib
import json

from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_elementwise import elementwise
from hybrid_infer.backends.native._cuda_rows import rows
from hybrid_infer.backends.native._plan import Plan, Step, encode

_GENERATED = {"elementwise": elementwise, "row": rows}


def name_of(plan: Plan, step: Step) -> str:
    """A C identifier; equal steps over equal types and shapes share it, and so the kernel, wherever they stand."""
    types = [plan.values[name].dtype for name in step.inputs]
    text = json.dumps([step.op, types, encode(dict(step.attributes))], sort_keys=True)
    return f"{step.op}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def kernels(plan: Plan) -> dict[str, Kernel]:
    """The kernels of `plan` by name. Steps without one (products, attention, convolutions, moves) are left out."""
    found: dict[str, Kernel] = {}
    for step in plan.steps:
        make = _GENERATED.get(step.op)
        if make is None:
            continue
        name = name_of(plan, step)
        if name not in found:
            found[name] = make(plan, step, name)
    return found
