"""ArgMax and ArgMin are spelled out: the extreme, the places where it stands, and the first or last of these.

The comparisons fuse to one step, and the executor of GPUs has kernels for all three. A NaN is the extreme of what it is
among, and its place the answer, as in torch.
"""

from __future__ import annotations

import numpy as np

from hybrid_infer.backends.native import _conditions
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim

_EXTREMES = {"ArgMax": "ReduceMax", "ArgMin": "ReduceMin"}
#: What the reductions have kernels for.
_TYPES = (*FLOATS, "int8", "uint8", "int32", "int64")


def spell_extremes(plan: Plan) -> None:
    plan.steps = [each for step in plan.steps for each in _spelled(plan, step)]


def _spelled(plan: Plan, step: Step) -> list[Step]:
    value = plan.values.get(step.inputs[0]) if step.op in _EXTREMES else None
    if value is None or not value.shape or value.dtype not in _TYPES:
        return [step]
    result, rank = step.outputs[0], len(value.shape)
    axis = step.attributes.get("axis", 0) % rank
    size, last = value.shape[axis], bool(step.attributes.get("select_last_index"))
    if size == 0:
        return [step]
    if not isinstance(size, int):  # of nothing there is none, as in eager code
        _conditions.ask(plan.conditions, _conditions.Condition("least", size, 1, step.op))
    steps: list[Step] = []
    one: tuple[Dim, ...] = (*value.shape[:axis], 1, *value.shape[axis + 1 :])
    along: tuple[Dim, ...] = (size, *[1] * (rank - axis - 1))

    def add(op: str, inputs: tuple[str, ...], suffix: str, of: Value, **attributes: object) -> str:
        name = plan.fresh(f"{result}:{suffix}") if suffix else result
        plan.values[name] = of
        steps.append(Step(op, inputs, (name,), attributes))
        return name

    def constant(suffix: str, array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
        name = plan.fresh(f"{result}:{suffix}")
        plan.constants[name], plan.values[name] = array, Value("int64", array.shape)
        return name

    def written(suffix: str, shape: tuple[Dim, ...], op: str, **told: object) -> str:
        return add(op, (), suffix, Value("int64", shape), shape=list(shape), dtype="int64", **told)

    if isinstance(size, int):
        places, none = constant("places", np.arange(size).reshape([*along])), np.array(-1 if last else size)
        beyond = constant("beyond", none)
    else:
        counted = written("counted", (size,), "range", start=[0], by=[1])
        places = add("view", (counted,), "places", Value("int64", along), shape=list(along))
        beyond = constant("beyond", np.array(-1)) if last else written("beyond", (), "sizes", elements=[size])
    axes = constant("axes", np.array([axis]))
    top = add(_EXTREMES[step.op], (step.inputs[0], axes), "top", Value(value.dtype, one), keepdims=1)
    truth = Value("bool", value.shape)
    there = add("Equal", (step.inputs[0], top), "equal", truth)
    if value.dtype in FLOATS:
        there = add("Or", (there, add("IsNaN", step.inputs[:1], "none", truth)), "there", truth)
    found = add("Where", (there, places, beyond), "where", Value("int64", value.shape))
    keep = int(bool(step.attributes.get("keepdims", 1)))
    add("ReduceMax" if last else "ReduceMin", (found, axes), "", plan.values[result], keepdims=keep)
    plan.decide("extremes", result, f"{step.op} is the {'last' if last else 'first'} place of its extreme")
    return steps
