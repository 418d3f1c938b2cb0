"""What repeats elements (Resize) or surrounds them (Pad) is spelled in moves, which have kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_infer.backends.native._plan import NUMPY, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim, divided

#: Where a pixel of the result comes from, and how that is rounded: by whole factors, each is repeated so many times.
_REPEATS = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}


def spell_moves(plan: Plan) -> None:
    rules: dict[str, Callable[[Plan, Step], list[Step]]] = {"Resize": _repeated, "Pad": _bordered}
    plan.steps = [each for step in plan.steps for each in (rules[step.op](plan, step) if step.op in rules else [step])]


def _repeated(plan: Plan, step: Step) -> list[Step]:
    """Each element beside itself: along a new axis, which is then taken together with the one before it."""
    (before, after), told = _shapes(plan, step), step.attributes
    form = told.get("coordinate_transformation_mode", "half_pixel"), told.get("nearest_mode", "round_prefer_floor")
    if before is None or after is None or told.get("mode", "nearest") != "nearest" or form not in _REPEATS:
        return [step]
    factors = [divided(new, old) if old else None for old, new in zip(before, after, strict=True)]
    if any(not isinstance(factor, int) or factor < 1 for factor in factors):
        return [step]
    apart: list[Dim] = [size for old in before for size in (old, 1)]
    wide: list[Dim] = [size for old, factor in zip(before, factors, strict=True) for size in (old, factor or 1)]
    dtype, result = plan.values[step.inputs[0]].dtype, step.outputs[0]
    names = [plan.fresh(f"{result}:{part}") for part in ("apart", "repeated")]
    for name, shape in zip(names, (apart, wide), strict=True):
        plan.values[name] = Value(dtype, tuple(shape))
    plan.decide("moves", result, f"Resize repeats each element {'x'.join(map(str, factors))} times")
    return [
        Step("view", step.inputs[:1], (names[0],), {"shape": apart}),
        Step("broadcast", (names[0],), (names[1],), {"shape": wide}),
        Step("view", (names[1],), step.outputs, {"shape": list(after)}),
    ]


def _bordered(plan: Plan, step: Step) -> list[Step]:
    """One element, repeated, before and behind, axis by axis."""
    (before, after), mode = _shapes(plan, step), step.attributes.get("mode", "constant")
    told: list[Any] = [plan.constants.get(name) if name else None for name in (*step.inputs[1:], "", "", "")[:3]]
    pads, fill, axes = told
    known = pads is not None and all(a is not None or not n for a, n in zip(told, step.inputs[1:], strict=False))
    if before is None or after is None or mode != "constant" or not known or (pads < 0).any():
        return [step]
    dtype, result = plan.values[step.inputs[0]].dtype, step.outputs[0]
    places = range(len(before)) if axes is None else [int(axis) % len(before) for axis in axes]
    if fill is not None and (fill.size != 1 or plan.values[step.inputs[2]].dtype != dtype):
        return [step]
    steps: list[Step] = []

    def add(op: str, inputs: Sequence[str], part: str, of: Sequence[Dim], **attributes: object) -> str:
        name = plan.fresh(f"{result}:{part}")
        plan.values[name] = Value(dtype, tuple(of))
        steps.append(Step(op, tuple(inputs), (name,), attributes))
        return name

    one, shape, inner = _element(plan, step, fill, dtype), list(before), step.inputs[0]
    for at, axis in enumerate(places):
        parts = [inner]
        for width, place in ((int(pads[at]), 0), (int(pads[at + len(places)]), len(parts) + 1)):
            if width:
                edge = [*shape[:axis], width, *shape[axis + 1 :]]
                parts.insert(place, add("broadcast", (one,), "border", edge, shape=edge))
        if len(parts) > 1:
            shape[axis] = shape[axis] + int(pads[at]) + int(pads[at + len(places)])
            inner = add("Concat", parts, "bordered", shape, axis=axis)
    plan.decide("moves", result, "Pad puts a repeated element beside what it surrounds")
    return [*steps, Step("view", (inner,), step.outputs, {"shape": list(after)})]


def _element(plan: Plan, step: Step, fill: Any, dtype: str) -> str:
    name = plan.fresh(f"{step.outputs[0]}:fill")
    plan.constants[name] = np.zeros((), NUMPY[dtype]) if fill is None else fill.reshape(())
    plan.values[name] = Value(dtype, ())
    return name


def _shapes(plan: Plan, step: Step) -> tuple[tuple[Dim, ...] | None, tuple[Dim, ...] | None]:
    values = plan.values.get(step.inputs[0]), plan.values.get(step.outputs[0])
    before, after = (None if value is None else value.shape for value in values)
    return before, after
