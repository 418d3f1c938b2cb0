"""Steps read what others only turn, cut and regroup where it lies, in strides: what would be copied is not.

Attention, elementwise steps and steps over rows take such windows (see `_window`), as long as the last axis stays one
of neighbours, which a GPU reads together. What another step needs as a copy is read from the copy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead
from hybrid_infer.backends.native._size import Dim, never_negative, product
from hybrid_infer.backends.native._window import Window, given, moved, whole

#: Bytes that kernels load at once.
_TOGETHER = 16

#: How many of its operands a step may read in windows: queries, keys and values, not the mask.
_READ = {"attention": 3, "elementwise": None, "row": None}

_MOVES = ("view", "Transpose", "Slice", "Split", "Gather", "broadcast")


class Source(NamedTuple):
    """Where an operand lies in fact: the array, the window in it, and the steps that are not needed for it."""

    name: str
    window: Window
    steps: tuple[Step, ...]


def read_in_place(plan: Plan) -> None:
    kept: set[int] = set()
    while True:
        found = _sources(plan, kept)
        needed = _needed(plan, found)
        again = {id(each) for source in found.values() for each in source.steps if id(each) in needed} - kept
        if not again:
            break
        kept |= again
    plan.steps = [_reading(plan, step, {i: source for (n, i), source in found.items() if n == at})
                  for at, step in enumerate(plan.steps)]  # fmt: skip
    if saved := drop_dead(plan):
        plan.decide("in place", "", f"{saved} steps that only turn, cut or regroup are read through, in strides")


def _sources(plan: Plan, kept: set[int]) -> dict[tuple[int, int], Source]:
    """Of operands that can be read in place, by the number of the step and that of the operand."""
    finder, found = Finder(plan), {}
    for at, step in enumerate(plan.steps):
        for i, shape in _operands(finder, step):
            source = trace(finder, step.inputs[i], shape, kept)
            if source is not None and _fits(step, source.window, finder.dtype(source.name)):
                found[at, i] = source
    return found


def _operands(finder: Finder, step: Step) -> Iterator[tuple[int, Sequence[Dim]]]:
    """The operands that a step may read in windows, and the shapes in which it does."""
    if step.op not in _READ:
        return
    seen = given(step)
    for i, name in enumerate(step.inputs[: _READ[step.op]]):
        if seen[i] is not None or name not in finder.maker:
            continue
        if step.op == "attention":
            shape: Sequence[Dim] | None = finder.shape(name)
        else:
            shape, space = step.attributes["views"][i], step.attributes["space"]
            if not certain(shape, space):
                continue
        if shape is not None:
            yield i, shape


def certain(view: Sequence[Dim], space: Sequence[Dim]) -> bool:
    """Is it known of each axis of a view whether it is spread over the space? Else the call will tell."""
    return all(size in (1, full) for size, full in zip(view[::-1], space[::-1], strict=False))


def trace(finder: Finder, name: str, shape: Sequence[Dim], kept: Collection[int] = ()) -> Source | None:
    """The array farthest up of which `name`, read in that shape, is a window; steps in `kept` are not read through."""
    way: list[tuple[Step, int]] = []
    while (step := finder.maker.get(name)) is not None and step.op in _MOVES and id(step) not in kept:
        way.append((step, step.outputs.index(name)))
        name = step.inputs[0]
    for far in range(len(way), 0, -1):
        top = way[far - 1][0]
        if top.op != "view" and (window := _seen(finder, way[:far][::-1], shape)) is not None:
            return Source(top.inputs[0], window, tuple(each for each, _ in way[:far]))
    return None


def _seen(finder: Finder, way: Sequence[tuple[Step, int]], shape: Sequence[Dim]) -> Window | None:
    """The window that the steps of a way down leave of the array that the first of them reads."""
    source = finder.shape(way[0][0].inputs[0])
    window = None if source is None else whole(source)
    for step, result in way:
        if step.op == "view":  # in which shape matters where axes are named
            continue
        own = finder.shape(step.inputs[0])
        window = None if window is None or own is None else window.regrouped(own)
        window = None if window is None else moved(finder.plan, step, result, window)
    return None if window is None else window.regrouped(shape)


def _fits(step: Step, window: Window, dtype: str) -> bool:
    """Can the step's kernels read it, neighbours together?"""
    if step.op == "attention":
        return readable(window, dtype)
    axes = [axis for axis, size in enumerate(window.sizes) if size != 1]
    return bool(axes) and window.strides[axes[-1]] == 1


def readable(window: Window, dtype: str) -> bool:
    """Can attention read matrices of that type so?"""
    axes = [axis for axis, size in enumerate(window.sizes) if size != 1]
    if any(window.strides[axis] == 0 or not never_negative(window.strides[axis]) for axis in axes):
        return False  # the libraries read nothing backwards, nor anything twice
    last = len(window.sizes) - 1
    length = window.sizes[last]
    together = math.gcd(length, _TOGETHER // BYTES[dtype]) if isinstance(length, int) else 1
    steps = [window.strides[axis] for axis in axes if axis != last]
    return (length == 1 or window.strides[last] == 1) and all(each % together == 0 for each in (*steps, window.start))


def _needed(plan: Plan, found: Mapping[tuple[int, int], Source]) -> set[int]:
    """Steps that are needed when those operands are read in place."""
    names, needed = set(plan.outputs), set[int]()
    for at in range(len(plan.steps) - 1, -1, -1):
        step = plan.steps[at]
        if not names.isdisjoint(step.outputs):
            needed.add(id(step))
            names.update(
                [found[at, i].name if (at, i) in found else name for i, name in enumerate(step.inputs) if name]
                if not step.bodies else step.reads()
            )  # fmt: skip
    return needed


def _reading(plan: Plan, step: Step, sources: Mapping[int, Source]) -> Step:
    if not sources:
        return step
    inputs, seen = list(step.inputs), given(step)
    for i, source in sources.items():
        inputs[i] = source.name
        if step.op == "attention":
            seen[i] = source.window.data()
        elif not (source.window.straight() and _all(plan, source)):
            seen[i] = spread(source.window, len(step.attributes["space"])).data()
    return replace(step, inputs=tuple(inputs), attributes={**step.attributes, "windows": seen})


def _all(plan: Plan, source: Source) -> bool:
    """Has the window all elements of its array?"""
    return product(source.window.sizes) == product(plan.values[source.name].shape or ())


def spread(window: Window, rank: int) -> Window:
    """In the axes of a space of that rank: an axis of size 1 is read again and again."""
    missing = rank - len(window.sizes)
    strides = [0 if size == 1 else stride for size, stride in zip(window.sizes, window.strides, strict=True)]
    return Window((*[1] * missing, *window.sizes), (*[0] * missing, *strides), window.start)
