"""Shapes that are known become part of the steps; what only renames, regroups or turns axes is merged or dropped.

After this, ``view`` (an array read in another shape), ``broadcast`` and ``Transpose`` are what is left of Reshape,
Squeeze, Unsqueeze, Flatten, Expand, ConstantOfShape, Identity and Dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hybrid_infer.backends.native._plan import NUMPY, Plan, Step, Value
from hybrid_infer.backends.native._rewrite import Finder, bypass, drop_dead, exchange, repeat
from hybrid_infer.backends.native._size import Dim, atoms, product

#: Poolings over whole images are reductions.
_GLOBAL = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}

_VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


def simplify_views(plan: Plan) -> None:
    plan.steps = [_plain(plan, step) for step in plan.steps]
    count = repeat(plan, _simplify)
    if count:
        plan.decide("views", "", f"{count} steps that only rename, regroup or turn axes were merged or dropped")
    drop_dead(plan)


def _known(plan: Plan, step: Step) -> tuple[Dim, ...] | None:
    """The shape of the result, if it is known before the step runs."""
    value = plan.values.get(step.outputs[0])
    if value is None or value.shape is None:
        return None
    own = {atom for size in value.shape for atom in atoms(size) if atom[0] == "data" and atom[1] in step.outputs}
    return None if own else value.shape


def _plain(plan: Plan, step: Step) -> Step:
    shape = _known(plan, step) if step.op in (*_VIEWS, "Expand", "Tile", "ConstantOfShape") else None
    if step.op in _VIEWS and shape is not None:
        return Step("view", step.inputs[:1], step.outputs, {"shape": list(shape)})
    if step.op == "Expand" and shape is not None:
        return Step("broadcast", step.inputs[:1], step.outputs, {"shape": list(shape)})
    if step.op == "Tile" and shape is not None and _repeats(plan, step):
        return Step("broadcast", step.inputs[:1], step.outputs, {"shape": list(shape)})
    if step.op == "ConstantOfShape" and shape is not None:
        fill = step.attributes.get("value") or {"dtype": "float32", "number": 0.0}
        name = plan.fresh(f"{step.outputs[0]}:fill")
        plan.constants[name] = np.array(fill["number"], NUMPY[fill["dtype"]])
        plan.values[name] = Value(fill["dtype"], ())
        return Step("broadcast", (name,), step.outputs, {"shape": list(shape)})
    if step.op in _GLOBAL:
        value = plan.values.get(step.inputs[0])
        if value is not None and value.shape is not None:
            name = plan.fresh(f"{step.outputs[0]}:axes")
            plan.constants[name] = np.arange(2, len(value.shape))
            plan.values[name] = Value("int64", (len(value.shape) - 2,))
            return Step(_GLOBAL[step.op], (step.inputs[0], name), step.outputs, {"keepdims": 1})
    if step.op == "CastLike":
        like = plan.values.get(step.inputs[1])
        if like is not None:
            return Step("Cast", step.inputs[:1], step.outputs, {"to": like.dtype})
    return step


def _repeats(plan: Plan, step: Step) -> bool:
    """Does it repeat only what has one element along an axis?"""
    times, value = plan.constants.get(step.inputs[1]), plan.values.get(step.inputs[0])
    if times is None or value is None or value.shape is None or len(times) != len(value.shape):
        return False
    return all(size == 1 or int(count) == 1 for size, count in zip(value.shape, times, strict=True))


def _simplify(finder: Finder, step: Step) -> bool:
    if _is_nothing(finder, step):
        return bypass(finder, step, step.inputs[0])
    if step.op == "view":
        return _merge_views(finder, step) or _turn_of_groups(finder, step)
    if step.op == "Transpose":
        return _merge_turns(finder, step) or _turn_is_view(finder, step)
    return False


def _is_nothing(finder: Finder, step: Step) -> bool:
    """Does the step give its operand as it is?"""
    plan = finder.plan
    if step.op == "Identity":
        return True
    if step.op == "Dropout":
        mode = step.inputs[2] if len(step.inputs) > 2 else ""
        unread = len(step.outputs) < 2 or step.outputs[1] not in {*finder.users, *finder.outputs}
        return unread and (not mode or finder.number(mode) is False)
    value = plan.values.get(step.inputs[0]) if step.inputs else None
    if step.op in ("view", "broadcast"):
        return value is not None and value.shape is not None and tuple(step.attributes["shape"]) == value.shape
    if step.op == "Cast":
        return value is not None and value.dtype == step.attributes["to"]
    if step.op == "Transpose":
        order = step.attributes.get("perm")
        return order is not None and list(order) == sorted(order)
    return False


def _merge_views(finder: Finder, step: Step) -> bool:
    inner = finder.made_by(step.inputs[0], "view")
    if inner is None:
        return False
    exchange(finder.plan, [step], replace(step, inputs=inner.inputs))
    return True


def _turn_of_groups(finder: Finder, step: Step) -> bool:
    """``(g, s, d) -> (g, d, s) -> (a, b, d, s)`` is a turn of the last two axes of (a, b, s, d)."""
    turn = finder.made_by(step.inputs[0], "Transpose")
    middle, wanted = None if turn is None else finder.shape(turn.inputs[0]), tuple(step.attributes["shape"])
    if turn is None or middle is None or list(turn.attributes.get("perm") or ()) != [0, 2, 1]:
        return False
    if len(wanted) < 3 or wanted[-2:] != (middle[2], middle[1]) or product(wanted[:-2]) != middle[0]:
        return False
    plan, rank = finder.plan, len(wanted)
    apart = (*wanted[:-2], wanted[-1], wanted[-2])
    name = plan.fresh(f"{step.outputs[0]}:apart")
    plan.values[name] = replace(plan.values[turn.inputs[0]], shape=apart)
    at = plan.steps.index(step)
    order = [*range(rank - 2), rank - 1, rank - 2]
    plan.steps[at : at + 1] = [
        Step("view", turn.inputs, (name,), {"shape": list(apart)}),
        Step("Transpose", (name,), step.outputs, {"perm": order}),
    ]
    return True


def _merge_turns(finder: Finder, step: Step) -> bool:
    inner = finder.made_by(step.inputs[0], "Transpose")
    if inner is None or "perm" not in step.attributes or "perm" not in inner.attributes:
        return False
    order = [inner.attributes["perm"][axis] for axis in step.attributes["perm"]]
    exchange(finder.plan, [step], Step("Transpose", inner.inputs, step.outputs, {"perm": order}))
    return True


def _turn_is_view(finder: Finder, step: Step) -> bool:
    """A turn that moves no axis longer than 1 past another one changes no order of elements."""
    shape, order = finder.shape(step.inputs[0]), step.attributes.get("perm")
    result = finder.shape(step.outputs[0])
    if shape is None or order is None or result is None:
        return False
    if not keeps_order(shape, order):
        return False
    exchange(finder.plan, [step], Step("view", step.inputs, step.outputs, {"shape": list(result)}))
    return True


def keeps_order(shape: Sequence[Dim], order: Sequence[int]) -> bool:
    """Does a turn leave all axes longer than 1 in the order in which they are?"""
    long = [axis for axis in order if shape[axis] != 1]
    return long == sorted(long)
