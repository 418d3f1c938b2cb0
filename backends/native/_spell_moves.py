"""What repeats, regroups or turns elements (nearest Resize, Tile, DepthToSpace) is spelled in moves; what weighs or
surrounds them (Resize, Pad) is told sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from hybrid_infer.backends.native import _conditions, _infer
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._rewrite import drop_dead
from hybrid_infer.backends.native._size import Dim, divided, known, never_negative
from hybrid_infer.backends.native._spelling import Spelling, spell

#: Where a pixel of the result comes from, and how that is rounded: by whole factors, each is repeated so many times.
_REPEATS = {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}

#: Where a pixel of the result comes from, where its neighbours are weighed.
_WEIGHED = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
#: Kernels count in whole numbers of 64 bits, in which scales of so many parts leave room for sizes.
_LARGEST = 2**31


def spell_moves(plan: Plan) -> None:
    if not any(step.op in _RULES for step in plan.steps):
        return
    contents = _infer.infer(plan).contents
    spell(plan, lambda plan, step: _RULES[step.op](plan, step, contents) if step.op in _RULES else [step])
    drop_dead(plan)


def _repeated(plan: Plan, step: Step) -> list[Step]:
    """Each element beside itself: along a new axis, which is then taken together with the one before it."""
    (before, after), told = _shapes(plan, step), step.attributes
    form = told.get("coordinate_transformation_mode", "half_pixel"), told.get("nearest_mode", "round_prefer_floor")
    if before is None or after is None or form not in _REPEATS:
        return []
    if len(step.inputs) < 4 or not step.inputs[3]:  # it goes by the scales, which the sizes are rounded from
        scales = plan.constants.get(step.inputs[2])
        if scales is None or not all(float(scale).is_integer() for scale in scales):
            return []
    factors = [divided(new, old) if old else None for old, new in zip(before, after, strict=True)]
    if any(not isinstance(factor, int) or factor < 1 for factor in factors):
        return []
    apart: list[Dim] = [size for old in before for size in (old, 1)]
    wide: list[Dim] = [size for old, factor in zip(before, factors, strict=True) for size in (old, factor or 1)]
    made = Spelling(plan, step.outputs[0])
    made.view(made.broadcast(made.view(step.inputs[0], "apart", apart), "repeated", wide), "", after)
    plan.decide("moves", made.result, f"Resize repeats each element {'x'.join(map(str, factors))} times")
    return made.steps


def _resized(plan: Plan, step: Step, contents: Mapping[str, Any]) -> list[Step]:
    """By how much each axis grows is told, also where it follows from the sizes of a call."""
    (before, after), told = _shapes(plan, step), step.attributes
    nearest = told.get("mode", "nearest") == "nearest"
    if nearest and (found := _repeated(plan, step)):
        return found
    dtype, form = plan.values[step.inputs[0]].dtype, told.get("coordinate_transformation_mode", "half_pixel")
    if before is None or after is None or (dtype not in FLOATS and not nearest) or form not in _WEIGHED:
        return [step]
    if not all(known(size) for size in after) or (told.get("antialias") and form == "align_corners"):
        return [step]
    axes = [int(axis) % len(before) for axis in told.get("axes") or range(len(before))]
    ratios: list[tuple[Dim, Dim]] = [(after[axis], before[axis]) for axis in axes]
    if len(step.inputs) < 4 or not step.inputs[3]:  # it goes by the scales, which the sizes are rounded from
        scales = plan.constants.get(step.inputs[2])
        if scales is None:
            return [step]
        parts = [Fraction(float(scale)).as_integer_ratio() for scale in scales]
        if any(max(each) > _LARGEST for each in parts):
            return [step]
        ratios = [*parts]
    resized = {
        axis: ratio for axis, ratio in zip(axes, ratios, strict=True)
        if ratio[0] != ratio[1] or before[axis] != after[axis]
    }  # fmt: skip
    sizes = [size for axis in resized for size in (before[axis], after[axis])]
    if 0 in sizes:
        return [step]
    for size in sizes:  # of nothing there is no neighbour
        _conditions.ask(plan.conditions, _conditions.Condition("least", size, 1, step.op))
    made = Spelling(plan, step.outputs[0])
    kept = {key: told[key] for key in ("cubic_coeff_a", "antialias", "exclude_outside") if key in told and not nearest}
    kept |= {"nearest_mode": told.get("nearest_mode", "round_prefer_floor")} if nearest else {}
    made.add(
        "resize", step.inputs[:1], "", plan.values[made.result], **kept, mode=told.get("mode", "nearest"),
        coordinate_transformation_mode=form,
        axes=list(resized), ratios=[size for ratio in resized.values() for size in ratio], shape=list(after),
    )  # fmt: skip
    return made.steps


def _surrounded(plan: Plan, step: Step, contents: Mapping[str, Any]) -> list[Step]:
    """How much stands in front of each axis is told, also where it follows from the sizes of a call."""
    (before, after), mode = _shapes(plan, step), step.attributes.get("mode", "constant")
    _, widths, fill, axes = (*step.inputs, "", "")[:4]
    told = [contents.get(name) for name in (widths, axes)]
    if before is None or after is None or told[0] is None or (axes and told[1] is None):
        return [step]
    given, dtype = list(told[0].reshape(-1)), plan.values[step.inputs[0]].dtype
    places = [int(axis) % len(before) for axis in (range(len(before)) if told[1] is None else told[1])]
    if not all(known(each) and (mode == "constant" or never_negative(each)) for each in given):
        return [step]
    number = plan.values[fill] if fill else Value(dtype, ())
    if number.dtype != dtype or number.shape is None or any(size != 1 for size in number.shape):
        return [step]
    made = Spelling(plan, step.outputs[0])
    first: list[Dim] = [0] * len(before)
    for axis, width in zip(places, given, strict=False):
        first[axis] = width
    one = fill or made.constant("fill", 0, dtype)
    made.add("pad", (step.inputs[0], one), "", plan.values[made.result], mode=mode, before=first, shape=list(after))
    return made.steps


def _shapes(plan: Plan, step: Step) -> tuple[tuple[Dim, ...] | None, tuple[Dim, ...] | None]:
    values = plan.values.get(step.inputs[0]), plan.values.get(step.outputs[0])
    before, after = (None if value is None else value.shape for value in values)
    return before, after


def _tiled(plan: Plan, step: Step, contents: Mapping[str, Any]) -> list[Step]:
    """The whole beside itself: along a new axis in front of each that is repeated."""
    (before, after), told = _shapes(plan, step), contents.get(step.inputs[1])
    if before is None or after is None or told is None or not all(known(size) for size in after):
        return [step]
    times = list(told.reshape(-1))
    apart: list[Dim] = [size for old in before for size in (1, old)]
    wide: list[Dim] = [size for old, count in zip(before, times, strict=True) for size in (count, old)]
    made = Spelling(plan, step.outputs[0])
    made.view(made.broadcast(made.view(step.inputs[0], "apart", apart), "repeated", wide), "", after)
    return made.steps


def _blocks(plan: Plan, step: Step, contents: Mapping[str, Any]) -> list[Step]:
    """Channels that become pixels, or pixels that become channels, are turned in between."""
    (before, after), b, told = _shapes(plan, step), step.attributes["blocksize"], step.attributes
    if before is None or after is None or not all(known(size) for size in after):
        return [step]
    n, c, h, w = before
    apart: list[Dim]
    if step.op == "SpaceToDepth":
        apart, order = [n, c, h // b, b, w // b, b], [0, 3, 5, 1, 2, 4]
    elif told.get("mode", "DCR") == "DCR":
        apart, order = [n, b, b, c // (b * b), h, w], [0, 3, 4, 1, 5, 2]
    else:
        apart, order = [n, c // (b * b), b, b, h, w], [0, 1, 4, 2, 5, 3]
    made = Spelling(plan, step.outputs[0])
    turned = Value(plan.values[step.inputs[0]].dtype, tuple(apart[axis] for axis in order))
    given = made.view(step.inputs[0], "apart", apart)
    made.view(made.add("Transpose", (given,), "turned", turned, perm=order), "", after)
    return made.steps


_RULES: dict[str, Callable[[Plan, Step, Mapping[str, Any]], list[Step]]] = {
    "Resize": _resized, "Pad": _surrounded, "Tile": _tiled, "DepthToSpace": _blocks, "SpaceToDepth": _blocks,
}  # fmt: skip
