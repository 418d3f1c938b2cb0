"""ArgMax and ArgMin are spelled out: the extreme, the places where it stands, and the first or last of these.

The comparisons fuse to one step, and the executor of GPUs has kernels for all three. A NaN is the extreme of what it is
among, and its place the answer, as in torch.
"""

from __future__ import annotations

from hybrid_infer.backends.native import _conditions
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._spelling import Spelling, spell

_EXTREMES = {"ArgMax": "ReduceMax", "ArgMin": "ReduceMin"}
#: What the reductions have kernels for.
_TYPES = (*FLOATS, "int8", "uint8", "int32", "int64")


def spell_extremes(plan: Plan) -> None:
    spell(plan, _spelled)


def _spelled(plan: Plan, step: Step) -> list[Step]:
    value = plan.values.get(step.inputs[0]) if step.op in _EXTREMES else None
    if value is None or not value.shape or value.dtype not in _TYPES:
        return [step]
    axis, told = step.attributes.get("axis", 0) % len(value.shape), step.attributes
    size, last, keep = value.shape[axis], bool(told.get("select_last_index")), int(bool(told.get("keepdims", 1)))
    if size == 0:
        return [step]
    if not isinstance(size, int):  # of nothing there is none, as in eager code
        _conditions.ask(plan.conditions, _conditions.Condition("least", size, 1, step.op))
    made, (given,), whole = Spelling(plan, step.outputs[0]), step.inputs, value.shape
    places = made.places("places", size, len(whole) - axis - 1)
    beyond = made.constant("beyond", -1, "int64") if last else made.number("beyond", size)
    axes = made.constant("axes", [axis], "int64")
    one = Value(value.dtype, (*whole[:axis], 1, *whole[axis + 1 :]))
    top = made.add(_EXTREMES[step.op], (given, axes), "top", one, keepdims=1)
    there = made.add("Equal", (given, top), "equal", Value("bool", whole))
    if value.dtype in FLOATS:
        none = made.add("IsNaN", (given,), "none", Value("bool", whole))
        there = made.add("Or", (there, none), "there", Value("bool", whole))
    found = made.add("Where", (there, places, beyond), "where", Value("int64", whole))
    result = plan.values[made.result]
    made.add("ReduceMax" if last else "ReduceMin", (found, axes), "", result, keepdims=keep)
    plan.decide("extremes", made.result, f"{step.op} is the {'last' if last else 'first'} place of its extreme")
    return made.steps
