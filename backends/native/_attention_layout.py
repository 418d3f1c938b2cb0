"""Attention reads queries, keys and values as they lie, and writes its result as it is read: strides do what turns did.

Heads stand behind tokens where a linear layer has written them, and in front of them in attention; both the libraries
and our own kernels take strides, as long as the last axis stays the last.
"""

from __future__ import annotations

from dataclasses import replace

from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, repeat


def absorb_turns(plan: Plan) -> None:
    repeat(plan, _absorb)
    drop_dead(plan)


def _order(step: Step | None) -> list[int] | None:
    """The order of axes of a turn that keeps the last axis."""
    order = None if step is None else step.attributes.get("perm")
    return list(order) if order and order[-1] == len(order) - 1 else None


def _absorb(finder: Finder, step: Step) -> bool:
    if step.op != "attention":
        return False
    for i, key in enumerate(("q_order", "k_order", "v_order")):
        turn = finder.made_by(step.inputs[i], "Transpose")
        order = _order(turn)
        if turn is None or order is None or key in step.attributes or (i == 1 and step.attributes["k_turned"]):
            continue
        inputs = tuple(turn.inputs[0] if n == i else name for n, name in enumerate(step.inputs))
        _put(finder, step, replace(step, inputs=inputs, attributes={**step.attributes, key: order}))
        finder.plan.decide("attention", step.outputs[0], f"reads operand {i} as it lies, in strides")
        return True
    user = finder.only_user(step.outputs[0])
    order = _order(user) if user is not None and user.op == "Transpose" else None
    if user is None or order is None or "order" in step.attributes:
        return False
    plan = finder.plan
    plan.steps = [each for each in plan.steps if each is not user]
    _put(finder, step, replace(step, outputs=user.outputs, attributes={**step.attributes, "order": order}))
    plan.decide("attention", user.outputs[0], "writes its result as it is read, in strides")
    return True


def _put(finder: Finder, old: Step, new: Step) -> None:
    finder.plan.steps = [new if each is old else each for each in finder.plan.steps]
