"""CUDA C for sums up to each place of an axis (CumSum): a thread goes along one line, and neighbours read neighbours.

Sums of narrow floats are taken in float32.
"""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel
from hybrid_infer.backends.native._cuda_each import each_element
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step
from hybrid_infer.backends.native._size import product

SCANS = ("CumSum",)
_TYPES = (*FLOATS, "int32", "int64")


def scan(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a step along one axis; None where its axis, shape or type is not known or not covered."""
    value, axis = plan.values.get(step.inputs[0]), plan.constants.get(step.inputs[1])
    if value is None or not value.shape or axis is None or value.dtype not in _TYPES:
        return None
    at = int(axis.reshape(-1)[0]) % len(value.shape)
    inner, length = product(value.shape[at + 1 :]), value.shape[at]
    count, dtype, c = product(value.shape[:at]) * inner, value.dtype, COMPUTE[inside(value.dtype)]
    reach = Access([1], [])
    span, apart, total = reach.term(length), reach.term(inner), reach.term(count)
    place = f"({span} - 1 - r)" if step.attributes.get("reverse") else "r"
    lines = ["total += hi_load(p0[from]);", f"p1[from] = HiStore<{STORED[dtype]}, {c}>::of(total);"]
    if step.attributes.get("exclusive"):
        lines = [f"const {c} x = hi_load(p0[from]);", lines[1], "total += x;"]
    body = [
        f"const I base = v / {apart} * {span} * {apart} + v % {apart};",
        f"{c} total = 0;",
        f"for (I r = 0; r < {span}; ++r) {{",
        f"  const I from = base + {place} * {apart};",
        *(f"  {line}" for line in lines),
        "}",
    ]
    return each_element(name, [dtype, dtype], reach, body, total, rows=count, largest=product(value.shape))
