"""Sampling between pixels (GridSample) is spelled out: places, rows of channels that are picked there, and their sum.

Of the pixels around a place each counts by how near it is, and not at all where it lies outside of the image. Places
are computed in float32 at least, in the order in which the frameworks compute them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hybrid_infer.backends.native import _conditions
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim, known
from hybrid_infer.backends.native._spelling import Spelling, spell

_MODES = {"linear": "linear", "bilinear": "linear", "nearest": "nearest"}


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
    if image is None or grid is None or image.shape is None or grid.shape is None or len(image.shape) != 4:
        return [step]
    sizes = (*image.shape, *grid.shape)
    if mode is None or padding not in ("zeros", "border") or {image.dtype, grid.dtype} - set(FLOATS):
        return [step]
    if not all(known(size) for size in sizes) or 0 in image.shape[2:]:
        return [step]
    for size in image.shape[2:]:
        _conditions.ask(plan.conditions, _conditions.Condition("least", size, 1, step.op))
    made = _Sampling(plan, step, mode, padding == "border", bool(told.get("align_corners")))
    made.write(step.inputs[0], step.inputs[1], image.shape, grid.shape)
    which = "the nearest pixel" if mode == "nearest" else "the four pixels around"
    plan.decide("samples", made.made.result, f"GridSample takes {which} of each place")
    return made.made.steps


class _Sampling:
    def __init__(self, plan: Plan, step: Step, mode: str, border: bool, corners: bool) -> None:
        self.made, self.plan = Spelling(plan, step.outputs[0]), plan
        self.mode, self.border, self.corners = mode, border, corners
        dtypes = [plan.values[name].dtype for name in step.inputs]
        self.dtype = "float64" if "float64" in dtypes else "float32"

    def write(self, image: str, grid: str, shape: Sequence[Dim], places: Sequence[Dim]) -> None:
        made, dtype = self.made, self.plan.values[image].dtype
        n, channels, height, width = shape
        self.each: tuple[Dim, ...] = (*places[:3], 1)
        wide = Value(dtype, (n, height, width, channels))
        turned = made.add("Transpose", (image,), "channels last", wide, perm=[0, 2, 3, 1])
        rows = made.view(turned, "rows", [n * height * width, channels])
        halves = [self._half(grid, i, places) for i in range(2)]
        across, down = (self._near(halves[i], size, "xy"[i]) for i, size in enumerate((width, height)))
        first = self._op("Mul", (made.places("image", n, 3), made.number("area", height * width)), "first", "int64",
                         (n, 1, 1, 1))  # fmt: skip
        total, stride, nothing = "", made.number("width", width), made.constant("nothing", 0, self.dtype)
        pixel: tuple[Dim, ...] = (*places[:3], channels)
        for i, y in enumerate(down):
            line = self._op("Mul", (y.place, stride), f"line {i}", "int64")
            line = self._op("Add", (first, line), f"row {i}", "int64")
            for j, x in enumerate(across):
                part = f"{i} {j}"
                at = self._op("Add", (line, x.place), f"at {part}", "int64")
                found = made.add("Gather", (rows, made.view(at, f"picks {part}", places[:3])), f"pixel {part}",
                                 Value(dtype, pixel), axis=0)  # fmt: skip
                found = self._cast(found, f"wide {part}", self.dtype, pixel)
                if x.weight is not None and y.weight is not None:
                    weight = self._op("Mul", (x.weight, y.weight), f"weight {part}")
                    found = self._op("Mul", (found, weight), f"weighted {part}", shape=pixel)
                inside = self._op("And", (x.inside, y.inside), f"inside {part}", "bool")
                found = self._op("Where", (inside, found, nothing), f"part {part}", shape=pixel)
                total = self._op("Add", (total, found), f"sum {part}", shape=pixel) if total else found
        total = self._cast(total, "narrow", dtype, pixel)
        result = Value(dtype, (places[0], channels, places[1], places[2]))
        made.add("Transpose", (total,), "", result, perm=[0, 3, 1, 2])

    def _op(self, op: str, inputs: Sequence[str], part: str, dtype: str = "", shape: Sequence[Dim] = ()) -> str:
        return self.made.add(op, inputs, part, Value(dtype or self.dtype, tuple(shape) or self.each))

    def _cast(self, name: str, part: str, dtype: str, shape: Sequence[Dim]) -> str:
        if self.plan.values[name].dtype == dtype:
            return name
        return self.made.add("Cast", (name,), part, Value(dtype, tuple(shape)), to=dtype)

    def _half(self, grid: str, which: int, places: Sequence[Dim]) -> str:
        """One of the two numbers of each place."""
        one = self.made.constant(f"which {which}", [which], "int64")
        cut = Value(self.plan.values[grid].dtype, self.each)
        found = self.made.add("Gather", (grid, one), f"half {which}", cut, axis=3)
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
        if self.border:  # NaN is at the first
            above = self._op("Greater", (place, zero), f"{axis} above", "bool")
            place = self._op("Where", (above, place, zero), f"{axis} from the first")
            below = self._op("Less", (place, last), f"{axis} below", "bool")
            place = self._op("Where", (below, place, last), f"{axis} to the last")
        if self.mode == "nearest":
            return [self._pixel(self._op("Round", (place,), f"{axis} nearest"), last, zero, axis, None)]
        before = self._op("Floor", (place,), f"{axis} before")
        behind = self._op("Add", (before, one), f"{axis} behind")
        far = self._op("Sub", (place, before), f"{axis} far")
        near = self._op("Sub", (behind, place), f"{axis} near")
        return [self._pixel(before, last, zero, f"{axis} 0", near), self._pixel(behind, last, zero, f"{axis} 1", far)]

    def _pixel(self, place: str, last: str, zero: str, part: str, weight: str | None) -> _Near:
        low = self._op("GreaterOrEqual", (place, zero), f"{part} low", "bool")
        high = self._op("LessOrEqual", (place, last), f"{part} high", "bool")
        inside = self._op("And", (low, high), f"{part} inside", "bool")
        held = self._op("Where", (inside, place, zero), f"{part} held")
        return _Near(self._cast(held, f"{part} at", "int64", self.each), inside, weight)
