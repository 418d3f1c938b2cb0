"""Where the elements that a step reads or writes lie in an array: what turns, cuts and regroups an array moves nothing.

A window has a size and a stride for each axis, in elements, and the place of its first element. Steps that take
windows say so by their attribute ``windows``: one for each operand and result, as data, or None where it lies as it is.
The axes are the operand's own in attention, and those of the space in elementwise steps and steps over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, broadcast, divided, first_of, smallest, strides


class Window(NamedTuple):
    """Of an array, as of a NumPy array's ``shape`` and ``strides``; see `whole`."""

    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    start: Dim = 0

    def turned(self, order: Sequence[int]) -> Window:
        """With its axes in another order."""
        sizes, strides = (tuple(part[axis] for axis in order) for part in (self.sizes, self.strides))
        return Window(sizes, strides, self.start)

    def swapped(self) -> Window:
        """With its last two axes in the other order."""
        last = len(self.sizes) - 1
        return self.turned([*range(last - 1), last, last - 1])

    def cut(self, axis: int, first: Dim, size: Dim, by: int = 1) -> Window:
        """`size` places of an axis, each `by` further than the one before, from `first` on."""
        sizes, strides = list(self.sizes), list(self.strides)
        sizes[axis], strides[axis] = size, self.strides[axis] * by
        return Window(tuple(sizes), tuple(strides), self.start + first * self.strides[axis])

    def without(self, axis: int) -> Window:
        """Without an axis of size 1."""
        sizes, strides = list(self.sizes), list(self.strides)
        del sizes[axis], strides[axis]
        return Window(tuple(sizes), tuple(strides), self.start)

    def regrouped(self, shape: Sequence[Dim]) -> Window | None:
        """The same elements in the same order, in another shape; None where no strides give that for certain."""
        groups = self._groups()
        strides: list[Dim] = []
        for size in shape:
            if size == 1:
                strides.append(1)  # see below
                continue
            rest = divided(groups[0][0], size) if groups else None
            if rest is None:
                return None
            strides.append(groups[0][1] * rest)
            groups[0] = (rest, groups[0][1])
            if rest == 1:
                del groups[0]
        for axis in range(len(shape) - 2, -1, -1):
            if shape[axis] == 1:
                strides[axis] = strides[axis + 1] * shape[axis + 1]
        return None if groups else Window(tuple(shape), tuple(strides), self.start)

    def _groups(self) -> list[tuple[Dim, Dim]]:
        """Sizes and strides of axes longer than 1, neighbours merged that follow each other."""
        found: list[tuple[Dim, Dim]] = []
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if size == 1:
                continue
            if found and found[-1][1] == stride * size:
                found[-1] = (found[-1][0] * size, stride)
            else:
                found.append((size, stride))
        return found

    def straight(self) -> bool:
        """Do its elements lie one behind the other, from the first place of the array on? There may be more of them."""
        groups = self._groups()
        return self.start == 0 and (not groups or (len(groups) == 1 and groups[0][1] == 1))

    def data(self) -> list[Any]:
        return [list(self.sizes), list(self.strides), self.start]


def whole(shape: Sequence[Dim]) -> Window:
    """An array of that shape as it is."""
    return Window(tuple(shape), tuple(strides(shape)))


def given(step: Step) -> list[Any]:
    """What a step says of each operand and result: a window as data, or None."""
    return list(step.attributes.get("windows") or [None] * (len(step.inputs) + len(step.outputs)))


def windows(step: Step) -> list[Window | None]:
    """Of each operand and result of a step."""
    return [None if each is None else Window(tuple(each[0]), tuple(each[1]), each[2]) for each in given(step)]


def moved(plan: Plan, step: Step, result: int, window: Window) -> Window | None:
    """Where what a step gives lies, if it only turns, cuts or repeats what lies in `window`; None where it does more,
    or where the place depends on sizes that are not known.
    """
    rule = {
        "Transpose": _turned, "Slice": _sliced, "Split": _part, "Gather": _picked, "broadcast": _repeated,
    }.get(step.op)  # fmt: skip
    return None if rule is None else rule(plan, step, result, window)


def _turned(plan: Plan, step: Step, result: int, window: Window) -> Window:
    return window.turned(step.attributes.get("perm") or range(len(window.sizes))[::-1])


def _sliced(plan: Plan, step: Step, result: int, window: Window) -> Window | None:
    told = [plan.constants.get(name) if name else None for name in step.inputs[1:]]
    lacking = [a is None and bool(n) for a, n in zip(told, step.inputs[1:], strict=True)]
    if len(told) < 2 or told[0] is None or any(lacking[2:]):
        return None  # where it ends says the shape of the result
    shape = plan.values[step.outputs[0]].shape
    axes = range(len(told[0])) if len(told) < 3 or told[2] is None else told[2]
    steps = [1] * len(told[0]) if len(told) < 4 or told[3] is None else told[3]
    assert shape is not None
    for begin, axis, by in zip(told[0], axes, steps, strict=True):
        at, first, by = int(axis) % len(shape), int(begin), int(by)
        size = window.sizes[at]
        if isinstance(size, int):
            low: Dim | None = min(max(first if first >= 0 else size + first, 0), size if by > 0 else size - 1)
        else:
            low = first_of(first, size, by)
        if low is None:
            return None
        window = window.cut(at, low, shape[at], by)
    return window


def _part(plan: Plan, step: Step, result: int, window: Window) -> Window | None:
    axis, at = step.attributes.get("axis", 0) % len(window.sizes), 0
    first: Dim = at
    for name in step.outputs[:result]:
        value = plan.values.get(name)
        if value is None or value.shape is None:
            return None
        first = first + value.shape[axis]
    shape = plan.values[step.outputs[result]].shape
    return None if shape is None else window.cut(axis, first, shape[axis])


def _picked(plan: Plan, step: Step, result: int, window: Window) -> Window | None:
    """One place of an axis, which falls out."""
    place = plan.constants.get(step.inputs[1])
    axis = step.attributes.get("axis", 0) % len(window.sizes)
    size = window.sizes[axis]
    if place is None or place.shape != () or not isinstance(size, int) or not -size <= int(place) < size:
        return None
    return window.cut(axis, int(place) % size, 1).without(axis)


def _repeated(plan: Plan, step: Step, result: int, window: Window) -> Window | None:
    """An axis that is repeated is not moved along."""
    shape = tuple(step.attributes["shape"])
    missing = len(shape) - len(window.sizes)
    sizes, strides = (*[1] * missing, *window.sizes), (*[0] * missing, *window.strides)
    found: list[Dim] = []
    for size, full, stride in zip(sizes, shape, strides, strict=True):
        if size in (1, full):
            found.append(0 if size == 1 else stride)
        elif not isinstance(full, int) and broadcast(size, full) == full:  # 1 or the whole, which the call will tell
            found.append(stride * smallest(size - 1, 1))
        else:
            return None
    return Window(shape, tuple(found), window.start)
