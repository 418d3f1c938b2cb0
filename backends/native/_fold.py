"""Computes once what depends on neither inputs nor weights, sizes that are known among it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybrid_infer.backends.native import _infer, _interpret
from hybrid_infer.backends.native._numpy_elementwise import round_bfloat16
from hybrid_infer.backends.native._plan import BYTES, NUMPY, Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, bypass, drop_dead, repeat
from hybrid_infer.backends.native._size import Size

#: A constant that is larger than what it is made from, and than this many bytes, is made at run time instead, if it is
#: read then.
_LARGE = 1 << 20

#: One that is larger than this is never computed here: what is made of it may be small, but it costs time and memory.
_LARGEST = 1 << 26


def fold(plan: Plan) -> None:
    count, before, late = 0, dict(plan.constants), list[Step]()
    # A new constant may be the shape that something else was waiting for.
    while folded := _fold_once(plan, _infer.infer(plan).contents, late):
        count += folded
    if count:
        plan.decide("fold", "", f"{count} steps depend on neither inputs nor weights and were computed")
    if chosen := repeat(plan, _choose):
        plan.decide("fold", "", f"{chosen} choices are made by constants")
    _postpone(plan, late, {**before, **plan.constants})
    drop_dead(plan)


def _postpone(plan: Plan, late: Sequence[Step], constants: Mapping[str, Any]) -> None:
    """Have the large constants that are still read made at run time, by those steps."""
    needed = {name for step in plan.steps for name in step.reads()} | set(plan.outputs)
    again = []
    for step in reversed(late):
        if not needed.isdisjoint(step.outputs):
            again.append(step)
            needed.update(step.reads())
    made = {name for step in late for name in step.outputs}
    plan.constants = {name: array for name, array in constants.items() if name not in made}
    if again:
        plan.steps[:0] = again[::-1]
        _infer.infer(plan)


def _choose(finder: Finder, step: Step) -> bool:
    """A ``Where`` whose condition is the same everywhere is the operand that it chooses, if that is as large."""
    choice = finder.number(step.inputs[0]) if step.op == "Where" else None
    if choice is None:
        return False
    source = step.inputs[1 if choice else 2]
    shape = finder.shape(source)
    return shape is not None and shape == finder.shape(step.outputs[0]) and bypass(finder, step, source)


def _fold_once(plan: Plan, contents: dict[str, Any], late: list[Step]) -> int:
    """How many steps are constants now. Those whose results are large are noted in `late`; results of these are let go
    when nothing is made of them any more.
    """
    kept = []
    large = {name for step in late for name in step.outputs}
    users = Counter(name for step in plan.steps for name in step.reads())
    users.update(plan.outputs)
    for step in plan.steps:
        found = _folded(plan, step, contents)
        if found is None:
            kept.append(step)
        else:
            read = [name for name in step.reads() if name in plan.constants]
            given = sum(plan.constants[name].nbytes for name in {*read} - large)
            if sum(array.nbytes for array in found) > max(given, _LARGE):
                late.append(step)
                large.update(step.outputs)
            for name, array in zip(step.outputs, found, strict=False):
                if name:
                    plan.constants[name] = array
                if name in plan.values:  # no run tells any more of sizes that only it would have
                    plan.values[name] = replace(plan.values[name], shape=array.shape)
            users.subtract(read)
            for name in large.intersection(read):
                if not users[name]:
                    plan.constants.pop(name, None)
    count = len(plan.steps) - len(kept)
    plan.steps = kept
    return count


def _folded(plan: Plan, step: Step, contents: dict[str, Any]) -> list[Any] | None:
    """The results of a step, if they can be had now."""
    if step.bodies or _open(step):
        return None
    if len(step.outputs) == 1 and step.outputs[0] in contents:
        array, value = contents[step.outputs[0]], plan.values[step.outputs[0]]
        if not any(isinstance(each, Size) for each in array.reshape(-1)):
            return [array.astype(NUMPY[value.dtype])]
    if not all(name in plan.constants for name in step.reads()) or _size_of(plan, step) > _LARGEST:
        return None
    operands = [plan.constants[name] if name else None for name in step.inputs]
    with np.errstate(all="ignore"):
        found = _interpret.apply(step, operands, {})
    rounded = [
        round_bfloat16(array) if name and plan.values[name].dtype == "bfloat16" else array
        for name, array in zip(step.outputs, found, strict=False)
    ]
    return [np.array(array, order="C") for array in rounded]


def _open(step: Step) -> bool:
    """Does what it does depend on the sizes of a call?"""
    parts = [part for part in step.attributes.values() if isinstance(part, list)]
    return any(isinstance(each, Size) for part in parts for each in part)


def _size_of(plan: Plan, step: Step) -> int:
    """Bytes of the results of a step, as far as their shapes are known."""
    shapes = [(value.dtype, value.fixed()) for name in step.outputs if (value := plan.values.get(name)) is not None]
    return sum(BYTES[dtype] * math.prod(shape) for dtype, shape in shapes if shape is not None)
