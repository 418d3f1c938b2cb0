"""Normalised groups of channels read and write images that hold their channels last, where convolutions do.

A group's elements may be visited in any order. Where each reader of a result turns it to channels last, and what is
read can be read so, the row's axes are visited with channels innermost: what is read and written lies side by side, and
the turns on both sides go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer.backends.native import _views
from hybrid_infer.backends.native._in_place import certain, spread, trace
from hybrid_infer.backends.native._layout import FIRST, LAST
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, repeat, sort_steps, splice
from hybrid_infer.backends.native._size import Dim, Size
from hybrid_infer.backends.native._window import Window, whole


def turn_rows(plan: Plan) -> None:
    if repeat(plan, _turn):
        repeat(plan, _views._simplify)
        drop_dead(plan)
        sort_steps(plan)


def _turn(finder: Finder, step: Step) -> bool:
    if step.op != "row" or len(step.outputs) != 1 or "windows" in step.attributes:
        return False
    result, space, axis = step.outputs[0], step.attributes["space"], step.attributes["axis"]
    shape = finder.shape(result)
    users = finder.users.get(result, [])
    if shape is None or len(shape) != 4 or not users or result in finder.outputs:
        return False
    if any(user.op != "Transpose" or list(user.attributes.get("perm") or ()) != LAST for user in users):
        return False
    last = tuple(shape[each] for each in LAST)
    written = whole(last).turned(FIRST).regrouped(space)
    if written is None:
        return False
    order = [*range(axis), *sorted(range(axis, len(space)), key=lambda each: _far(written.strides[each]), reverse=True)]
    if written.strides[order[-1]] != 1:
        return False
    operands = [
        _read(finder, name, view, space, order)
        for name, view in zip(step.inputs, step.attributes["views"], strict=True)
    ]
    found = [each for each in operands if each is not None]
    if len(found) < len(operands):
        return False
    _put(finder.plan, step, found, written.turned(order), last)
    return True


def _far(stride: Dim) -> tuple[int, Any]:
    """A key by which axes are sorted: how far apart neighbours are, as far as that is known."""
    if not isinstance(stride, Size):
        return 0, stride
    return max(len(monomial) for monomial, _ in stride.terms), repr(stride)


def _read(
    finder: Finder, name: str, view: Sequence[Dim], space: Sequence[Dim], order: Sequence[int]
) -> tuple[str, Window] | None:
    """An array in which an operand lies so that neighbours in the row are neighbours there, and its window."""
    if not certain(view, space):
        return None
    candidates = [(name, whole(view))]
    if (source := trace(finder, name, view)) is not None:
        candidates.append((source.name, source.window))
    while (regrouped := finder.made_by(name, "view")) is not None:
        name = regrouped.inputs[0]
    for user in finder.users.get(name, ()):
        if user.op == "Transpose" and list(user.attributes.get("perm") or ()) == LAST:
            shape = finder.shape(user.outputs[0])
            window = None if shape is None else whole(shape).turned(FIRST).regrouped(view)
            if window is not None:
                candidates.append((user.outputs[0], window))
    for where, window in candidates:
        turned = spread(window, len(space)).turned(order)
        if turned.strides[-1] in (0, 1):
            return where, turned
    return None


def _put(plan: Plan, step: Step, found: Sequence[tuple[str, Window]], written: Window, last: tuple[Dim, ...]) -> None:
    result = step.outputs[0]
    name = plan.fresh(f"{result}:last")
    plan.values[name] = replace(plan.values[result], shape=last)
    attributes = {
        **step.attributes, "space": list(written.sizes), "views": [list(window.sizes) for _, window in found],
        "windows": [*(window.data() for _, window in found), written.data()],
        "outputs": [[plan.values[name].dtype, list(last)]],
    }  # fmt: skip
    splice(plan, step, [
        Step("row", tuple(where for where, _ in found), (name,), attributes),
        Step("Transpose", (name,), (result,), {"perm": FIRST}),
    ])  # fmt: skip
    plan.decide("rows", result, "reads and writes its groups of channels last, as convolutions do")
