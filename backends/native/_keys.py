"""What decides the schedule of a call, and what follows from that: sizes, the integers that kernels read, copies."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from hybrid_infer._errors import ArgumentsRefused
from hybrid_infer.backends.native import _conditions, _size
from hybrid_infer.backends.native._plan import BYTES, NAME, Plan
from hybrid_infer.backends.native._schedule import Schedule
from hybrid_infer.backends.native._size import Atom


class Key(NamedTuple):
    """The shapes of the arguments of a call, and those of them that are integers."""

    shapes: tuple[tuple[int, ...], ...]
    numbers: tuple[int | None, ...]


def symbols(plan: Plan, names: Sequence[str], key: Key) -> dict[Atom, int]:
    """What the sizes of a call are, whose arguments are called `names`. Raises EngineError where they do not fit."""
    found = dict[Atom, int]()
    for name, shape, number in zip(names, key.shapes, key.numbers, strict=True):
        found.update({("dim", name, axis): size for axis, size in enumerate(shape)})
        if number is not None:
            found["int", name] = number
    for name, shape in zip(names, key.shapes, strict=True):
        wanted = plan.values[name].shape
        if wanted is not None and tuple(_size.evaluate(size, found) for size in wanted) != shape:
            raise ArgumentsRefused(NAME, f"{name!r} has the shape {shape} where the plan takes {wanted}")
    if reason := _conditions.broken(plan.conditions, found):
        raise ArgumentsRefused(NAME, reason)
    return found


def numbers(plan: Plan, names: Sequence[str], read: Collection[str], key: Key) -> list[tuple[int, str, bytes]]:
    """The integers of a call that are in `read`, by kernels: place among the arguments, element type and bytes."""
    found = []
    for i, (name, number) in enumerate(zip(names, key.numbers, strict=True)):
        if number is not None and name in read:
            dtype = plan.values[name].dtype
            found.append((i, dtype, number.to_bytes(BYTES[dtype], "little", signed=dtype.startswith("int"))))
    return found


def copied(
    plan: Plan, names: Sequence[str], read: Collection[str], key: Key, schedule: Schedule
) -> tuple[list[int], list[int]]:
    """Bytes of the arguments and of the results that a graph copies: integers are written by the graph itself."""
    pairs = [(plan.values[n].dtype, s) for n, s in zip(names, key.shapes, strict=True)]
    made = [(plan.values[n].dtype, s) for n, s in zip(plan.outputs, schedule.shapes, strict=True)]
    inputs, outputs = ([math.prod(s) * BYTES[dtype] for dtype, s in part] for part in (pairs, made))
    tensors = [name in read and number is None for name, number in zip(names, key.numbers, strict=True)]
    return [nbytes if each else 0 for nbytes, each in zip(inputs, tensors, strict=True)], outputs
