"""The kernels of a plan: CUDA C for every step that has one, under names that depend on what they compute alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from hybrid_infer.backends.native import _cuda_reduce
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_elementwise import elementwise
from hybrid_infer.backends.native._cuda_rows import rows
from hybrid_infer.backends.native._plan import Plan, Step, encode

_GENERATED: dict[str, Callable[[Plan, Step, str], Kernel | None]] = {
    "elementwise": elementwise, "row": rows, **dict.fromkeys(_cuda_reduce.FORMS, _cuda_reduce.reduction),
}  # fmt: skip


def name_of(plan: Plan, step: Step) -> str:
    """A C identifier; equal steps over equal types and shapes share it, and so the kernel, wherever they stand."""
    types = [plan.values[name].dtype for name in step.inputs]
    what: list[object] = [step.op, types, encode(dict(step.attributes))]
    if step.op in _cuda_reduce.FORMS:
        value = plan.values[step.inputs[0]]
        what += [encode(value.shape), _cuda_reduce.axes_of(plan, step)]
    text = json.dumps(what, sort_keys=True)
    return f"{step.op.lower()}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def kernels(plan: Plan) -> dict[str, Kernel]:
    """The kernels of `plan` by name. Steps without one (products, attention, convolutions, moves) are left out."""
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
