"""Triangles (Trilu) are elementwise: what lies on the other side of the diagonal is 0."""

from __future__ import annotations

from hybrid_infer.backends.native._plan import Plan, Step, Value
from hybrid_infer.backends.native._spelling import Spelling, spell


def spell_triangles(plan: Plan) -> None:
    spell(plan, _spelled)


def _spelled(plan: Plan, step: Step) -> list[Step]:
    value = plan.values.get(step.inputs[0]) if step.op == "Trilu" else None
    if value is None or value.shape is None or len(value.shape) < 2:
        return [step]
    made, kept = Spelling(plan, step.outputs[0]), Value("bool", value.shape[-2:])
    shift = step.inputs[1] if len(step.inputs) > 1 and step.inputs[1] else made.constant("main", 0, "int64")
    if plan.values[shift].shape != ():
        return [step]
    rows, columns = made.places("rows", value.shape[-2], 1), made.places("columns", value.shape[-1])
    diagonal = made.add("Add", (rows, shift), "diagonal", Value("int64", (value.shape[-2], 1)))
    side = "GreaterOrEqual" if step.attributes.get("upper", 1) else "LessOrEqual"
    inside = made.add(side, (columns, diagonal), "inside", kept)
    made.add("Where", (inside, step.inputs[0], made.constant("nothing", 0, value.dtype)), "", value)
    plan.decide("triangles", made.result, "is elementwise, and joins what stands beside it")
    return made.steps
