"""Computes once what depends on neither inputs nor weights, sizes that are known among it."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_infer.backends.native import _infer, _interpret
from hybrid_infer.backends.native._numpy_elementwise import round_bfloat16
from hybrid_infer.backends.native._plan import NUMPY, Plan, Step
from hybrid_infer.backends.native._rewrite import drop_dead
from hybrid_infer.backends.native._size import Size

#: A constant that is larger than what it is made from, and than this many bytes, is made at run time instead.
_LARGE = 1 << 20


def fold(plan: Plan) -> None:
    count = 0
    # A new constant may be the shape that something else was waiting for.
    while folded := _fold_once(plan, _infer.infer(plan).contents):
        count += folded
    if count:
        plan.decide("fold", "", f"{count} steps depend on neither inputs nor weights and were computed")
    drop_dead(plan)


def _fold_once(plan: Plan, contents: dict[str, Any]) -> int:
    kept = []
    for step in plan.steps:
        found = _folded(plan, step, contents)
        if found is None:
            kept.append(step)
        else:
            plan.constants.update({name: found[i] for i, name in enumerate(step.outputs) if name})
    count = len(plan.steps) - len(kept)
    plan.steps = kept
    return count


def _folded(plan: Plan, step: Step, contents: dict[str, Any]) -> list[Any] | None:
    """The results of a step, if they can be had now."""
    if step.bodies:
        return None
    if len(step.outputs) == 1 and step.outputs[0] in contents:
        array, value = contents[step.outputs[0]], plan.values[step.outputs[0]]
        if not any(isinstance(each, Size) for each in array.reshape(-1)):
            return [array.astype(NUMPY[value.dtype])]
    if not all(name in plan.constants for name in step.reads()):
        return None
    operands = [plan.constants[name] if name else None for name in step.inputs]
    given = sum(array.nbytes for array in operands if array is not None)
    with np.errstate(all="ignore"):
        found = _interpret.apply(step, operands, {})
    if sum(array.nbytes for array in found) > max(given, _LARGE):
        return None
    rounded = [
        round_bfloat16(array) if name and plan.values[name].dtype == "bfloat16" else array
        for name, array in zip(step.outputs, found, strict=False)
    ]
    return [np.array(array, order="C") for array in rounded]
