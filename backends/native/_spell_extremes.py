"""ArgMax and ArgMin are spelled out: the extreme, the places where it stands, and the first or last of these.

The comparisons fuse to one step, and the executor of GPUs has kernels for all three. A NaN is the extreme of what it is
among, and its place the answer, as in torch. ReduceLogSumExp is spelled out too: exponentials are of what is left
without the largest, which is added in the end.
"""

from __future__ import annotations

from hybrid_infer.backends.native import _conditions
from hybrid_infer.backends.native._cuda_reduce import axes_of
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._spelling import Spelling, spell

_EXTREMES = {"ArgMax": "ReduceMax", "ArgMin": "ReduceMin"}
#: What the reductions have kernels for.
_TYPES = (*FLOATS, "int8", "uint8", "int32", "int64")


def spell_extremes(plan: Plan) -> None:
    spell(plan, lambda plan, step: _logarithm(plan, step) if step.op == "ReduceLogSumExp" else _spelled(plan, step))


def _logarithm(plan: Plan, step: Step) -> list[Step]:
    value, axes = plan.values.get(step.inputs[0]), axes_of(plan, step)
    if value is None or value.shape is None or not axes or value.dtype not in FLOATS:
        return [step]
    made, result = Spelling(plan, step.outputs[0]), plan.values[step.outputs[0]]
    wide = "float64" if value.dtype == "float64" else "float32"
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(value.shape))
    told = made.constant("axes", sorted(axes), "int64")
    given = step.inputs[0]
    if wide != value.dtype:
        given = made.add("Cast", (given,), "wide", Value(wide, value.shape), to=wide)
    top = made.add("ReduceMax", (given, told), "top", Value(wide, kept), keepdims=1)
    endless = made.add("IsInf", (top,), "endless", Value("bool", kept))
    top = made.add("Where", (endless, made.constant("nothing", 0, wide), top), "largest", Value(wide, kept))
    left = made.add("Sub", (given, top), "left", Value(wide, value.shape))
    powers = made.add("Exp", (left,), "powers", Value(wide, value.shape))
    total = made.add("ReduceSum", (powers, told), "total", Value(wide, kept), keepdims=1)
    logarithm = made.add("Log", (total,), "logarithm", Value(wide, kept))
    found = made.add("Add", (logarithm, top), "found", Value(wide, kept))
    if wide != value.dtype:
        found = made.add("Cast", (found,), "narrow", Value(value.dtype, kept), to=value.dtype)
    made.view(found, "", result.shape if result.shape is not None else kept)
    return made.steps


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
