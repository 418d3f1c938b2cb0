"""One arena for all values between steps: who may lie where, by liveness.

The lifetimes are part of the plan; places follow from them for the sizes of a call. Not in the arena are inputs,
constants, outputs, which belong to the caller, and values whose size is known only once they are computed. A view lies
where its operand lies, which lives as long as it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybrid_infer.backends.native import _size
from hybrid_infer.backends.native._plan import Plan
from hybrid_infer.backends.native._size import Atom, product

#: Every value begins at a multiple of this many bytes, as vector loads and GPU libraries want it.
ALIGNMENT = 256


@dataclass(frozen=True)
class Layout:
    """Byte offsets of the values in the arena, and its size."""

    offsets: Mapping[str, int]
    sizes: Mapping[str, int]
    total: int


def plan_memory(plan: Plan) -> None:
    """Give `plan` its lifetimes: ``buffers`` of [value, dtype, elements, first step, last step], and ``aliases``."""
    aliases: dict[str, str] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, step in enumerate(plan.steps):
        for name in step.reads():
            root = aliases.get(name, name)
            if root in first:
                last[root] = i
        for name in step.outputs:
            if not name:
                continue
            if step.op == "view" and name not in plan.outputs:
                aliases[name] = aliases.get(step.inputs[0], step.inputs[0])
            else:
                first[name] = last[name] = i
    buffers, apart = [], []
    for name, at in first.items():
        value = plan.values.get(name)
        if name in plan.outputs:
            continue
        if value is None or value.shape is None or not all(_size.known(size) for size in value.shape):
            apart.append(name)
            continue
        buffers.append([name, value.dtype, product(value.shape), at, last[name]])
    plan.memory = {"buffers": buffers, "aliases": aliases, "apart": apart}
    plan.decide(
        "memory", "", f"{len(buffers)} values share one arena, {len(aliases)} are views of others, "
        f"{len(apart)} are allocated as they are computed",
    )  # fmt: skip


def layout(memory: Mapping[str, Any], symbols: Mapping[Atom, int], width: Mapping[str, int]) -> Layout:
    """Places for one call: the largest first, each as low as those that live at the same time allow.

    `width`: bytes per element of each dtype.
    """
    wanted = []
    for name, dtype, count, first, last in memory["buffers"]:
        size = -(-_size.evaluate(count, symbols) * width[dtype] // ALIGNMENT) * ALIGNMENT
        wanted.append((size, first, last, name))
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, int, int]] = []
    total = 0
    for size, first, last, name in sorted(wanted, key=lambda each: (-each[0], each[1])):
        at = 0
        for low, high, start, end in sorted(placed):
            if start <= last and first <= end and low < at + size and at < high:
                at = high
        offsets[name] = at
        placed.append((at, at + size, first, last))
        total = max(total, at + size)
    return Layout(offsets, {name: size for size, _, _, name in wanted}, total)
