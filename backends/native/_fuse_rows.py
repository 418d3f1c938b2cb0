"""Normalisations and softmax become steps over rows, which take in the elementwise steps before and behind them.

A row step reads its operands in one space, whose axes from ``axis`` on are one row: ``before`` computes the element,
the row is normalised, ``after`` computes the results from ``["row"]``. GroupNorm's rows are groups of channels, whose
scale and bias, or whatever stands behind a change of shape, are read in a space that has the axes of both shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_infer.backends.native import _code
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, repeat, sort_steps
from hybrid_infer.backends.native._size import Dim, product
from hybrid_infer.backends.native._spelling import Spelling

_KINDS = {
    "LayerNormalization": "layer", "RMSNormalization": "rms", "Softmax": "softmax", "LogSoftmax": "log_softmax",
    "InstanceNormalization": "layer", "GroupNormalization": "layer",
}  # fmt: skip


def fuse_rows(plan: Plan) -> None:
    """Turn each normalisation into a step over rows, which then takes in its neighbours."""
    plan.steps = [_row(plan, each) or each for step in plan.steps for each in _along_the_last(plan, step)]
    repeat(plan, _take)
    drop_dead(plan)
    sort_steps(plan)


def _along_the_last(plan: Plan, step: Step) -> list[Step]:
    """A softmax over another axis, of the classes of an image, is one over the last axis between two turns."""
    value = plan.values.get(step.inputs[0]) if step.op in ("Softmax", "LogSoftmax") else None
    if value is None or not value.shape or value.dtype not in FLOATS:
        return [step]
    order = list(range(len(value.shape)))
    axis = step.attributes.get("axis", -1) % len(order)
    if axis == order[-1]:
        return [step]
    order[axis], order[-1] = order[-1], order[axis]
    made, between = Spelling(plan, step.outputs[0]), Value(value.dtype, tuple(value.shape[each] for each in order))
    turned = made.add("Transpose", step.inputs[:1], "turned", between, perm=order)
    found = made.add(step.op, (turned,), "found", between, axis=-1)
    made.add("Transpose", (found,), "", value, perm=order)
    plan.decide("rows", made.result, f"{step.op} over axis {axis} is one over the last, turned there and back")
    return made.steps


def _row(plan: Plan, step: Step) -> Step | None:
    kind = _KINDS.get(step.op)
    value = plan.values.get(step.inputs[0]) if step.inputs else None
    if kind is None or value is None or value.shape is None or value.dtype not in FLOATS or any(step.outputs[1:]):
        return None
    shape, at = value.shape, step.attributes
    space, axis = shape, at.get("axis", -1) % max(len(shape), 1)
    channels: tuple[Dim, ...] | None = None
    if step.op in ("Softmax", "LogSoftmax"):
        if not shape or axis != len(shape) - 1:
            return None
    elif step.op == "InstanceNormalization":
        axis, channels = 2, (shape[1], *[1] * (len(shape) - 2))
    elif step.op == "GroupNormalization":
        groups, each = at["num_groups"], shape[1] // at["num_groups"]
        space, axis = (shape[0], groups, each, *shape[2:]), 2
        channels = (groups, 1 if at.get("per_group") else each, *[1] * (len(shape) - 2))
    operands = [name for name in step.inputs[1:] if name]
    code: list[_code.Instruction] = []
    inputs, views = [step.inputs[0]], [list(space)]
    result: _code.Argument = ["row"]
    for name, op in zip(step.inputs[1:], ("Mul", "Add"), strict=False):
        if not name:
            continue
        fixed = _code.constant(plan, name)
        if fixed is not None and fixed[1] == (1 if op == "Mul" else 0):
            continue
        if fixed is None:
            own = plan.values[name].shape
            if own is None:
                return None
            views.append(list(own if channels is None else channels))
            inputs.append(name)
            fixed = ["in", len(inputs) - 1]
        code.append([op, [result, fixed], value.dtype, {}])
        result = ["at", len(code) - 1]
    attributes: dict[str, Any] = {
        "kind": kind, "axis": axis, "space": list(space), "views": views, "before": [], "source": ["in", 0],
        "code": code, "results": [result], "dtype": value.dtype,
        "outputs": _code.types(plan, step.outputs[:1]),
    }  # fmt: skip
    if kind in ("layer", "rms"):
        attributes["epsilon"] = float(at.get("epsilon", 1e-5))
    why = f"{step.op} is a step over rows" + (f" with {len(operands)} operands" if operands else "")
    plan.decide("rows", step.outputs[0], why)
    return Step("row", tuple(inputs), step.outputs[:1], attributes)


def _take(finder: Finder, step: Step) -> bool:
    if step.op != "row":
        return False
    return _take_before(finder, step) or _take_after(finder, step)


def _bodies(views: Sequence[Sequence[Dim]], old: Sequence[Dim], fine: Sequence[Dim]) -> list[list[Dim]] | None:
    found = [_code.split_view(view, old, fine) for view in views]
    return None if any(view is None for view in found) else [list(view) for view in found if view is not None]


def _common(row: Step, other: Step) -> tuple[list[Dim], int, list[list[Dim]], list[list[Dim]]] | None:
    """One space for both: it, the axis of its rows, and the views of both steps' operands in it."""
    mine, theirs = row.attributes["space"], other.attributes["space"]
    axis = row.attributes["axis"]
    if list(mine) == list(theirs):
        return list(mine), axis, row.attributes["views"], other.attributes["views"]
    fine = _code.refine(mine, theirs)
    if fine is None:
        return None
    head, at = product(mine[:axis]), 0
    total: Dim = 1
    while total != head:
        if at == len(fine):
            return None
        total = total * fine[at]
        at += 1
    views = _bodies(row.attributes["views"], mine, fine), _bodies(other.attributes["views"], theirs, fine)
    if views[0] is None or views[1] is None:
        return None
    return list(fine), at, views[0], views[1]


def _shift(code: Sequence[Any], by: int, operands: Sequence[int], replaced: dict[int, Any]) -> list[Any]:
    """Instructions with their places moved on by `by`, operands renumbered or, where they were computed, replaced."""

    def argument(each: Any) -> Any:
        if each[0] == "at":
            return ["at", each[1] + by]
        if each[0] == "in":
            return replaced.get(each[1], ["in", operands[each[1]]])
        return each

    return [[op, [argument(a) for a in arguments], dtype, attributes] for op, arguments, dtype, attributes in code]


def _argument(each: Any, by: int, operands: Sequence[int], replaced: dict[int, Any]) -> Any:
    return _shift([["", [each], "", {}]], by, operands, replaced)[0][1][0]


def _join(
    first: Sequence[str], second: Sequence[str], views: list[list[Dim]], more: list[list[Dim]], gone: set[str]
) -> tuple[list[str], list[list[Dim]], list[int]]:
    """Operands of both steps, each once per view; where those of the second are now."""
    names, shapes, places = list(first), list(views), []
    for name, view in zip(second, more, strict=True):
        if name in gone:
            places.append(-1)
            continue
        pair = next((i for i, (n, v) in enumerate(zip(names, shapes, strict=True)) if n == name and v == view), None)
        if pair is None:
            names.append(name)
            shapes.append(view)
            pair = len(names) - 1
        places.append(pair)
    return names, shapes, places


def _take_before(finder: Finder, step: Step) -> bool:
    """Compute the element in the step, if it comes from an elementwise step whose other results nobody needs first."""
    at = step.attributes
    if at["before"] or at["source"][0] != "in":
        return False
    source = step.inputs[at["source"][1]]
    group = finder.made_by(source, "elementwise")
    if group is None or list(at["views"][at["source"][1]]) != list(at["space"]):
        return False
    common = _common(step, group)
    if common is None or _between(finder, group, step):
        return False
    space, axis, mine, theirs = common
    # The row's operands come first, but for those that the group computes.
    inside = dict(zip(group.outputs, group.attributes["results"], strict=True))
    kept = [(name, view) for name, view in zip(step.inputs, mine, strict=True) if name not in inside]
    full = all(list(v) == list(space) for n, v in zip(step.inputs, mine, strict=True) if n in inside)
    if not full:
        return False
    names, views, places = _join([n for n, _ in kept], group.inputs, [v for _, v in kept], theirs, set())
    before = _shift(group.attributes["code"], 0, places, {})
    renumber = [
        -1 if name in inside else kept.index((name, view)) for name, view in zip(step.inputs, mine, strict=True)
    ]
    code = [
        [op, [_early(each, step, inside, renumber) for each in arguments], dtype, extra]
        for op, arguments, dtype, extra in at["code"]
    ]
    results = [_early(each, step, inside, renumber) for each in at["results"]]
    outer = [
        name for name in group.outputs
        if name in finder.outputs or any(user is not step for user in finder.users.get(name, ()))
    ]  # fmt: skip
    early = [_argument(inside[name], 0, places, {}) for name in outer]
    attributes = {
        **at, "axis": axis, "space": space, "views": views, "before": before,
        "source": _argument(inside[source], 0, places, {}), "code": code,
        "results": [*results, *[["early", each] for each in early]],
        "outputs": _code.types(finder.plan, (*step.outputs, *outer)),
    }  # fmt: skip
    merged = Step("row", tuple(names), (*step.outputs, *outer), attributes)
    _exchange(finder, step, group, merged)
    finder.plan.decide("rows", step.outputs[0], f"computes its elements: {len(before)} steps before it are part of it")
    return True


def _early(each: Any, step: Step, inside: dict[str, Any], renumber: Sequence[int]) -> Any:
    """An argument behind the row; what the group in front computes is named as such."""
    if each[0] != "in":
        return each
    name = step.inputs[each[1]]
    return ["early", inside[name]] if name in inside else ["in", renumber[each[1]]]


def _take_after(finder: Finder, step: Step) -> bool:
    """Take in the elementwise step that reads the row's result, straight or in another shape."""
    at = step.attributes
    for result, found in zip(step.outputs, at["results"], strict=True):
        for user in finder.users.get(result, ()):
            view = user if user.op == "view" and finder.only_for(result, user) else None
            read = result if view is None else view.outputs[0]
            group = user if view is None else finder.only_user(read)
            if group is None or group.op != "elementwise":
                continue
            place = group.inputs.index(read)
            if list(group.attributes["views"][place]) != list(group.attributes["space"]):
                continue
            if _merge_after(finder, step, group, view, read, found):
                return True
    return False


def _merge_after(finder: Finder, step: Step, group: Step, view: Step | None, read: str, found: Any) -> bool:
    at = step.attributes
    common = _common(step, group)
    if common is None or _between(finder, step, group, view):
        return False
    space, axis, mine, theirs = common
    inside = dict(zip(step.outputs, at["results"], strict=True))
    if view is not None:
        inside[read] = found
    shapes = [list(v) for n, v in zip(group.inputs, theirs, strict=True) if n in inside]
    if any(shape != list(space) for shape in shapes):
        return False
    names, views, places = _join(step.inputs, group.inputs, mine, theirs, set(inside))
    replaced = {i: inside[name] for i, name in enumerate(group.inputs) if name in inside}
    by = len(at["code"])
    code = [*at["code"], *_shift(group.attributes["code"], by, places, replaced)]
    kept = [
        (name, each) for name, each in zip(step.outputs, at["results"], strict=True)
        if name in finder.outputs or any(u is not group and u is not view for u in finder.users.get(name, ()))
    ]  # fmt: skip
    more = [_argument(each, by, places, replaced) for each in group.attributes["results"]]
    attributes = {
        **at, "axis": axis, "space": space, "views": views, "code": code, "results": [*[e for _, e in kept], *more],
    }  # fmt: skip
    outputs = (*[name for name, _ in kept], *group.outputs)
    merged = Step("row", tuple(names), outputs, {**attributes, "outputs": _code.types(finder.plan, outputs)})
    gone = [step] if view is None else [step, view]
    finder.plan.steps = [each for each in finder.plan.steps if not any(each is one for one in gone)]
    finder.plan.steps = [merged if each is group else each for each in finder.plan.steps]
    sort_steps(finder.plan)
    finder.plan.decide("rows", group.outputs[0], f"{len(group.attributes['code'])} steps behind the row are part of it")
    return True


def _exchange(finder: Finder, step: Step, group: Step, merged: Step) -> None:
    plan = finder.plan
    plan.steps = [each for each in plan.steps if each is not group]
    plan.steps = [merged if each is step else each for each in plan.steps]
    sort_steps(plan)


def _between(finder: Finder, first: Step, last: Step, also: Step | None = None) -> bool:
    """Does a way from `first` to `last` lead through another step?"""
    stack = [finder.maker[name] for name in last.reads() if name in finder.maker]
    stack = [each for each in stack if each is not first and each is not also]
    seen: set[int] = set()
    while stack:
        each = stack.pop()
        if each is first:
            return True
        if id(each) in seen:
            continue
        seen.add(id(each))
        stack.extend(finder.maker[name] for name in each.reads() if name in finder.maker)
    return False
