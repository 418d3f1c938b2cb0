"""Attention writes its result as it is read: strides do what a turn did.

Heads stand behind tokens where a linear layer reads them, and in front of them in attention; both the libraries and our
own kernels take strides, as long as the last axis stays the last. See `_in_place` for what attention reads.
"""

from __future__ import annotations

from dataclasses import replace

from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, repeat, splice


def absorb_turns(plan: Plan) -> None:
    repeat(plan, _absorb)
    drop_dead(plan)


def _absorb(finder: Finder, step: Step) -> bool:
    if step.op != "attention" or "order" in step.attributes:
        return False
    user = finder.only_user(step.outputs[0])
    order = user.attributes.get("perm") if user is not None and user.op == "Transpose" else None
    if user is None or not order or order[-1] != len(order) - 1:
        return False
    plan, written = finder.plan, {**step.attributes, "order": list(order)}
    plan.steps = [each for each in plan.steps if each is not user]
    splice(plan, step, [replace(step, outputs=user.outputs, attributes=written)])
    plan.decide("attention", user.outputs[0], "writes its result as it is read, in strides")
    return True
