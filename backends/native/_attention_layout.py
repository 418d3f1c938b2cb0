"""Attention writes its result as it is read: strides do what a turn did.

Heads stand behind tokens where a linear layer reads them, and in front of them in attention; both the libraries and our
own kernels take strides, as long as the last axis stays the last. See `_in_place` for what attention reads. Where rows
that are masked whole are replaced before the turn, they are replaced after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hybrid_infer.backends.native._broadcasts import ELEMENTWISE
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, repeat, splice
from hybrid_infer.backends.native._size import Dim
from hybrid_infer.backends.native._views import keeps_order


def absorb_turns(plan: Plan) -> None:
    repeat(plan, _turn_first)
    repeat(plan, _absorb)
    drop_dead(plan)


def _turned(finder: Finder, step: Step) -> tuple[Step, list[int]] | None:
    """What turns a result that nothing else reads, and leaves the last axis the last; and its order of axes."""
    user = finder.only_user(step.outputs[0])
    order = user.attributes.get("perm") if user is not None and user.op == "Transpose" else None
    return None if user is None or not order or order[-1] != len(order) - 1 else (user, list(order))


def _turn_first(finder: Finder, step: Step) -> bool:
    """Turn attention's result before what chooses or adds something smaller: that is turned at little cost."""
    if step.op != "attention" or "order" in step.attributes:
        return False
    user, shape = finder.only_user(step.outputs[0]), finder.shape(step.outputs[0])
    found = None if user is None or user.op not in ELEMENTWISE else _turned(finder, user)
    if user is None or shape is None or found is None or finder.shape(user.outputs[0]) != shape:
        return False
    others = [finder.shape(name) for name in user.inputs if name != step.outputs[0]]
    if any(other is None or len(other) > len(shape) or other == shape for other in others):
        return False
    plan, (turn, order) = finder.plan, found
    made, inputs = [], []
    for name in user.inputs:
        given = finder.shape(name) or ()
        apart, after = _orders(given, order)
        if apart == after and keeps_order(apart, order):
            inputs.append(name)
            continue
        inputs.append(plan.fresh(f"{name}:turned"))
        plan.values[inputs[-1]] = replace(plan.values[name], shape=after)
        if name != step.outputs[0] and keeps_order(apart, order):
            made.append(Step("view", (name,), (inputs[-1],), {"shape": list(after)}))
            continue
        if apart != given:
            name, before = plan.fresh(f"{name}:apart"), name
            plan.values[name] = replace(plan.values[before], shape=apart)
            made.append(Step("view", (before,), (name,), {"shape": list(apart)}))
        made.append(Step("Transpose", (name,), (inputs[-1],), {"perm": order}))
    plan.steps = [each for each in plan.steps if each is not turn]
    splice(plan, user, [*made, replace(user, inputs=tuple(inputs), outputs=turn.outputs)])
    return True


def _orders(shape: tuple[Dim, ...], order: Sequence[int]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """A shape with all axes, and that with them in another order."""
    apart = (*([1] * (len(order) - len(shape))), *shape)
    return apart, tuple(apart[axis] for axis in order)


def _absorb(finder: Finder, step: Step) -> bool:
    found = _turned(finder, step) if step.op == "attention" and "order" not in step.attributes else None
    if found is None:
        return False
    plan, (turn, order) = finder.plan, found
    plan.steps = [each for each in plan.steps if each is not turn]
    written = {**step.attributes, "order": order}
    splice(plan, step, [replace(step, outputs=turn.outputs, attributes=written)])
    plan.decide("attention", turn.outputs[0], "writes its result as it is read, in strides")
    return True
