"""Sampling between pixels (GridSample) is spelled out: places, rows of channels that are picked there, and their sum.

Of the pixels around a place each counts by how near it is, and not at all where it lies outside of the image, unless
places are held at its border or reflected there. Places are computed in float32 at least, in the order in which the
frameworks compute them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from hybrid_infer.backends.native import _conditions
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim, known
from hybrid_infer.backends.native._spelling import Spelling, spell

_MODES = {"linear": "linear", "bilinear": "linear", "nearest": "nearest"}

_PADDINGS = ("zeros", "border", "reflection")


class _Near(NamedTuple):
    """One of the pixels around each place, along one axis: where it is, whether it is in the image, what it counts."""

    place: str
    inside: str
    weight: str | None


def spell_samples(plan: Plan) -> None:
    spell(plan, _spelled)


def _spelled(plan: Plan, step: Step) -> list[Step]:
    if step.op != "GridSample":
        return [step]
    (image, grid), told = (plan.values.get(name) for name in step.inputs), step.attributes
    mode, padding = _MODES.get(told.get("mode", "linear")), told.get("padding_mode", "zeros")
    if image is None or grid is None or image.shape is None or grid.shape is None:
        return [step]
    sizes = (*image.shape, *grid.shape)
    rank = len(image.shape) - 2
    if mode is None or padding not in _PADDINGS or {image.dtype, grid.dtype} - set(FLOATS):
        return [step]
    if len(grid.shape) != rank + 2 or rank not in (2, 3):
        return [step]
    if not all(known(size) for size in sizes) or 0 in image.shape[2:]:
        return [step]
    for size in image.shape[2:]:
        _conditions.ask(plan.conditions, _conditions.Condition("least", size, 1, step.op))
    made = _Sampling(plan, step, mode, padding, bool(told.get("align_corners")))
    made.write(step.inputs[0], step.inputs[1], image.shape, grid.shape)
    count = 1 if mode == "nearest" else 2**rank
    plan.decide("samples", made.made.result, f"GridSample takes {count} pixels for each place")
    return made.made.steps


class _Sampling:
    def __init__(self, plan: Plan, step: Step, mode: str, padding: str, corners: bool) -> None:
        self.made, self.plan = Spelling(plan, step.outputs[0]), plan
        self.mode, self.padding, self.corners = mode, padding, corners
        dtypes = [plan.values[name].dtype for name in step.inputs]
        self.dtype = "float64" if "float64" in dtypes else "float32"

    def write(self, image: str, grid: str, shape: Sequence[Dim], places: Sequence[Dim]) -> None:
        made, dtype, count = self.made, self.plan.values[image].dtype, len(shape) - 2
        n, channels, *sizes = shape
        self.each: tuple[Dim, ...] = (*places[:-1], 1)
        wide = Value(dtype, (n, *sizes, channels))
        turned = made.add("Transpose", (image,), "channels last", wide, perm=[0, *range(2, count + 2), 1])
        whole: Dim = 1
        for size in sizes:
            whole = whole * size
        rows = made.view(turned, "rows", [n * whole, channels])
        # The grid names the last axis first.
        near = [self._near(self._half(grid, count - 1 - i, places), size, "zyx"[3 - count + i])
                for i, size in enumerate(sizes)]  # fmt: skip
        first = self._op("Mul", (made.places("image", n, count + 1), made.number("area", whole)), "first", "int64",
                         (n, *[1] * (count + 1)))  # fmt: skip
        strides = [made.number(f"stride {i}", size) for i, size in enumerate(sizes)]
        total, nothing, pixel = "", made.constant("nothing", 0, self.dtype), (*places[:-1], channels)
        for chosen in product(*(range(len(each)) for each in near)):
            part, corner = " ".join(map(str, chosen)), [each[i] for i, each in zip(chosen, near, strict=True)]
            line = ""
            for i, (each, stride) in enumerate(zip(corner, strides, strict=True)):
                before = self._op("Mul", (line, stride), f"line {i} {part}", "int64") if line else ""
                line = self._op("Add", (before, each.place), f"row {i} {part}", "int64") if before else each.place
            at = self._op("Add", (first, line), f"at {part}", "int64")
            found = made.add("Gather", (rows, made.view(at, f"picks {part}", places[:-1])), f"pixel {part}",
                             Value(dtype, pixel), axis=0)  # fmt: skip
            found = self._cast(found, f"wide {part}", self.dtype, pixel)
            weight, inside = corner[0].weight, corner[0].inside
            for i, each in enumerate(corner[1:]):
                inside = self._op("And", (inside, each.inside), f"inside {i} {part}", "bool")
                if weight is not None and each.weight is not None:
                    weight = self._op("Mul", (weight, each.weight), f"weight {i} {part}")
            if weight is not None:
                found = self._op("Mul", (found, weight), f"weighted {part}", shape=pixel)
            found = self._op("Where", (inside, found, nothing), f"part {part}", shape=pixel)
            total = self._op("Add", (total, found), f"sum {part}", shape=pixel) if total else found
        total = self._cast(total, "narrow", dtype, pixel)
        result = Value(dtype, (places[0], channels, *places[1:-1]))
        made.add("Transpose", (total,), "", result, perm=[0, count + 1, *range(1, count + 1)])

    def _op(
        self, op: str, inputs: Sequence[str], part: str, dtype: str = "", shape: Sequence[Dim] = (), **told: object
    ) -> str:
        return self.made.add(op, inputs, part, Value(dtype or self.dtype, tuple(shape) or self.each), **told)

    def _cast(self, name: str, part: str, dtype: str, shape: Sequence[Dim]) -> str:
        if self.plan.values[name].dtype == dtype:
            return name
        return self.made.add("Cast", (name,), part, Value(dtype, tuple(shape)), to=dtype)

    def _half(self, grid: str, which: int, places: Sequence[Dim]) -> str:
        """One of the two numbers of each place."""
        one = self.made.constant(f"which {which}", [which], "int64")
        cut = Value(self.plan.values[grid].dtype, self.each)
        found = self.made.add("Gather", (grid, one), f"half {which}", cut, axis=len(places) - 1)
        return self._cast(found, f"wide {which}", self.dtype, self.each)

    def _number(self, part: str, size: Dim) -> str:
        if isinstance(size, int):
            return self.made.constant(part, size, self.dtype)
        return self._cast(self.made.number(f"{part} whole", size), part, self.dtype, ())

    def _near(self, given: str, size: Dim, axis: str) -> list[_Near]:
        """The pixels around each place along an axis, by where it is between -1 and 1."""
        one, two, zero = (self.made.constant(f"{axis} is {n}", n, self.dtype) for n in (1, 2, 0))
        last = self._number(f"{axis} last", size - 1)
        moved = self._op("Add", (given, one), f"{axis} moved")
        if self.corners:
            place = self._op("Mul", (self._op("Div", (moved, two), f"{axis} half"), last), f"{axis} place")
        else:
            whole = self._op("Mul", (moved, self._number(f"{axis} size", size)), f"{axis} whole")
            place = self._op("Div", (self._op("Sub", (whole, one), f"{axis} shifted"), two), f"{axis} place")
        place = self._held(place, size, last, zero, axis)
        if self.mode == "nearest":
            return [self._pixel(self._op("Round", (place,), f"{axis} nearest"), last, zero, axis, None)]
        before = self._op("Floor", (place,), f"{axis} before")
        behind = self._op("Add", (before, one), f"{axis} behind")
        far = self._op("Sub", (place, before), f"{axis} far")
        near = self._op("Sub", (behind, place), f"{axis} near")
        return [self._pixel(before, last, zero, f"{axis} 0", near), self._pixel(behind, last, zero, f"{axis} 1", far)]

    def _held(self, place: str, size: Dim, last: str, zero: str, part: str) -> str:
        """A place that is reflected at the image's borders, or held there: NaN is at the first."""
        if self.padding == "zeros":
            return place
        if self.padding == "reflection":
            low = self.made.constant(f"{part} low", 0 if self.corners else -0.5, self.dtype)
            span = last if self.corners else self._number(f"{part} span", size)
            two = self.made.constant(f"{part} both", 2, self.dtype)
            far = self._op("Abs", (self._op("Sub", (place, low), f"{part} from low"),), f"{part} off")
            turns = self._op("Floor", (self._op("Div", (far, span), f"{part} spans"),), f"{part} turns")
            far = self._op("Mod", (far, span), f"{part} beyond", fmod=1)
            odd = self._op("Mod", (turns, two), f"{part} odd", fmod=1)
            back = self._op("Sub", (span, far), f"{part} back")
            even = self._op("Equal", (odd, zero), f"{part} even", "bool")
            place = self._op("Add", (self._op("Where", (even, far, back), f"{part} turned"), low), f"{part} reflected")
        above = self._op("Greater", (place, zero), f"{part} above", "bool")
        place = self._op("Where", (above, place, zero), f"{part} from the first")
        below = self._op("Less", (place, last), f"{part} below", "bool")
        return self._op("Where", (below, place, last), f"{part} to the last")

    def _pixel(self, place: str, last: str, zero: str, part: str, weight: str | None) -> _Near:
        low = self._op("GreaterOrEqual", (place, zero), f"{part} low", "bool")
        high = self._op("LessOrEqual", (place, last), f"{part} high", "bool")
        inside = self._op("And", (low, high), f"{part} inside", "bool")
        held = self._op("Where", (inside, place, zero), f"{part} held")
        return _Near(self._cast(held, f"{part} at", "int64", self.each), inside, weight)
