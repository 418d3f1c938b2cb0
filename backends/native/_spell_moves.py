"""What repeats elements (Resize) or surrounds them (Pad) is spelled in moves, which have kernels on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer.backends.native._plan import Plan, Step, Value
from hybrid_infer.backends.native._size import Dim, divided
from hybrid_infer.backends.native._spelling import Spelling, spell

#: Where a pixel of the result comes from, and how that is rounded: by whole factors, each is repeated so many times.
_REPEATS = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}


def spell_moves(plan: Plan) -> None:
    rules: dict[str, Callable[[Plan, Step], list[Step]]] = {"Resize": _repeated, "Pad": _bordered}
    spell(plan, lambda plan, step: rules[step.op](plan, step) if step.op in rules else [step])


def _repeated(plan: Plan, step: Step) -> list[Step]:
    """Each element beside itself: along a new axis, which is then taken together with the one before it."""
    (before, after), told = _shapes(plan, step), step.attributes
    form = told.get("coordinate_transformation_mode", "half_pixel"), told.get("nearest_mode", "round_prefer_floor")
    if before is None or after is None or told.get("mode", "nearest") != "nearest" or form not in _REPEATS:
        return [step]
    if len(step.inputs) < 4 or not step.inputs[3]:  # it goes by the scales, which the sizes are rounded from
        scales = plan.constants.get(step.inputs[2])
        if scales is None or not all(float(scale).is_integer() for scale in scales):
            return [step]
    factors = [divided(new, old) if old else None for old, new in zip(before, after, strict=True)]
    if any(not isinstance(factor, int) or factor < 1 for factor in factors):
        return [step]
    apart: list[Dim] = [size for old in before for size in (old, 1)]
    wide: list[Dim] = [size for old, factor in zip(before, factors, strict=True) for size in (old, factor or 1)]
    made = Spelling(plan, step.outputs[0])
    made.view(made.broadcast(made.view(step.inputs[0], "apart", apart), "repeated", wide), "", after)
    plan.decide("moves", made.result, f"Resize repeats each element {'x'.join(map(str, factors))} times")
    return made.steps


def _bordered(plan: Plan, step: Step) -> list[Step]:
    """One element, repeated, before and behind, axis by axis."""
    (before, after), mode = _shapes(plan, step), step.attributes.get("mode", "constant")
    told: list[Any] = [plan.constants.get(name) if name else None for name in (*step.inputs[1:], "", "", "")[:3]]
    pads, fill, axes = told
    known = pads is not None and all(a is not None or not n for a, n in zip(told, step.inputs[1:], strict=False))
    if before is None or after is None or mode != "constant" or not known or (pads < 0).any():
        return [step]
    dtype, made = plan.values[step.inputs[0]].dtype, Spelling(plan, step.outputs[0])
    places = range(len(before)) if axes is None else [int(axis) % len(before) for axis in axes]
    if fill is not None and (fill.size != 1 or plan.values[step.inputs[2]].dtype != dtype):
        return [step]
    one = made.constant("fill", 0 if fill is None else fill.reshape(()), dtype)
    shape, inner = list(before), step.inputs[0]
    for at, axis in enumerate(places):
        widths = int(pads[at]), int(pads[at + len(places)])
        first, last = (
            [made.broadcast(one, "border", [*shape[:axis], width, *shape[axis + 1 :]])] if width else []
            for width in widths
        )
        if first or last:
            shape[axis] = shape[axis] + sum(widths)
            inner = made.add("Concat", (*first, inner, *last), "bordered", Value(dtype, tuple(shape)), axis=axis)
    made.view(inner, "", after)
    plan.decide("moves", made.result, "Pad puts a repeated element beside what it surrounds")
    return made.steps


def _shapes(plan: Plan, step: Step) -> tuple[tuple[Dim, ...] | None, tuple[Dim, ...] | None]:
    values = plan.values.get(step.inputs[0]), plan.values.get(step.outputs[0])
    before, after = (None if value is None else value.shape for value in values)
    return before, after
