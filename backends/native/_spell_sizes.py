"""Small whole numbers that follow from sizes, and counts up to them, are written from the sizes of a call.

Where a graph is captured for any size, ``Shape``, ``Concat`` and the like compute shapes from shapes, and ``Range``
counts up to one. What reads them as shapes has its own answer by then (see `hybrid_infer.backends.native._infer`); what
reads them as elements, such as the ends of a slice or the positions of a mask, reads what is written here.
"""

from __future__ import annotations

from typing import Any

from hybrid_infer.backends.native import _infer
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import drop_dead
from hybrid_infer.backends.native._size import Dim, Size, known

_TYPES = ("int64", "int32")


def spell_sizes(plan: Plan) -> None:
    contents = _infer.infer(plan).contents
    before, plan.steps = plan.steps, [_spelled(plan, step, contents) for step in plan.steps]
    if count := sum(a is not b for a, b in zip(before, plan.steps, strict=True)):
        plan.decide("sizes", "", f"{count} steps are written from the sizes of a call")
    drop_dead(plan)


def _spelled(plan: Plan, step: Step, contents: dict[str, Any]) -> Step:
    """The step, or one that writes the same from sizes."""
    name = step.outputs[0]
    value = plan.values.get(name)
    if len(step.outputs) != 1 or step.bodies or value is None or value.dtype not in _TYPES or value.shape is None:
        return step
    if name in contents:
        elements: list[Dim] = list(contents[name].reshape(-1))
        if any(isinstance(each, Size) for each in elements) and all(known(each) for each in elements):
            shape = list(contents[name].shape)
            return Step("sizes", (), step.outputs, {"elements": elements, "shape": shape, "dtype": value.dtype})
    if step.op == "Range" and all(each in contents for each in step.inputs):
        start, _, by = (contents[each].reshape(-1)[0] for each in step.inputs)
        if all(known(each) for each in (start, by, *value.shape)):
            told = {"start": [start], "by": [by], "shape": list(value.shape), "dtype": value.dtype}
            return Step("range", (), step.outputs, told)
    return step
