"""CUDA C for steps that only move elements: turns, slices, parts, joins, repetitions, rows picked by index.

Each is one or more copies between strided boxes; all copies of a step are one launch. A thread moves several elements
at a time where both sides keep the innermost axis whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hybrid_infer.backends.native._cuda_access import VECTOR, Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_elementwise import THREADS
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, Size, product


@dataclass
class _Copy:
    """One box: its sizes, and for the operand and the result, by number, strides and the place of the first element.

    ``picked``: the axis along which the operand is read at places given by the second operand, whose length is
    ``length`` in the operand.
    """

    sizes: list[Dim]
    source: int
    read: list[Dim]
    result: int
    written: list[Dim]
    start: Dim = 0
    goal: Dim = 0
    picked: int | None = None
    length: Dim = 0
    numbers: list[Size] = field(default_factory=list)

    def merged(self) -> _Copy:
        """Without axes of size 1, neighbours merged that follow each other on both sides."""
        kept = [i for i, size in enumerate(self.sizes) if size != 1 or i == self.picked]
        sizes: list[Dim] = []
        read: list[Dim] = []
        written: list[Dim] = []
        picked = None
        for i in kept:
            joins = (
                sizes and i != self.picked and picked != len(sizes) - 1
                and read[-1] == self.read[i] * self.sizes[i] and written[-1] == self.written[i] * self.sizes[i]
            )  # fmt: skip
            if joins:
                sizes[-1], read[-1], written[-1] = sizes[-1] * self.sizes[i], self.read[i], self.written[i]
                continue
            if i == self.picked:
                picked = len(sizes)
            sizes.append(self.sizes[i])
            read.append(self.read[i])
            written.append(self.written[i])
        found = (sizes or [1], self.source, read or [1], self.result, written or [1])
        return _Copy(*found, self.start, self.goal, picked, self.length)

    def lanes(self, most: int) -> int:
        """How many neighbours may move together."""
        if self.read[-1] != 1 or self.written[-1] != 1 or self.picked == len(self.sizes) - 1:
            return 1
        steps = [self.sizes[-1], *self.read[:-1], *self.written[:-1], self.start, self.goal]
        while most > 1 and any(each % most != 0 for each in steps):
            most //= 2
        return most


def _strides(shape: Sequence[Dim]) -> list[Dim]:
    return [product(shape[axis + 1 :]) for axis in range(len(shape))]


def _shapes(plan: Plan, step: Step) -> tuple[list[Sequence[Dim]], list[Sequence[Dim]]] | None:
    """The shapes of operands and results, if all are known."""
    found: list[list[Sequence[Dim]]] = []
    for names in (step.inputs, step.outputs):
        shapes = [plan.values[name].shape if name in plan.values else None for name in names if name]
        found.append([shape for shape in shapes if shape is not None])
        if len(found[-1]) != len(shapes):
            return None
    return found[0], found[1]


def _turn(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[_Copy] | None:
    order = step.attributes.get("perm") or list(range(len(ins[0])))[::-1]
    strides = _strides(ins[0])
    return [_Copy(list(outs[0]), 0, [strides[axis] for axis in order], 0, _strides(outs[0]))]


def _repeat(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[_Copy] | None:
    shape = [*([1] * (len(outs[0]) - len(ins[0]))), *ins[0]]
    if any(a != b and a != 1 for a, b in zip(shape, outs[0], strict=True)):
        return None
    strides = [0 if size == 1 else stride for size, stride in zip(shape, _strides(shape), strict=True)]
    return [_Copy(list(outs[0]), 0, strides, 0, _strides(outs[0]))]


def _slice(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[_Copy] | None:
    given = [plan.constants.get(name) if name else None for name in step.inputs[1:]]
    if len(given) < 2 or given[0] is None or any(a is None and n for a, n in zip(given, step.inputs[1:], strict=True)):
        return None
    axes = range(len(given[0])) if len(given) < 3 or given[2] is None else given[2]
    steps = [1] * len(given[0]) if len(given) < 4 or given[3] is None else given[3]
    strides, read, start = _strides(ins[0]), _strides(ins[0]), 0
    place: Dim = start
    for begin, axis, by in zip(given[0], axes, steps, strict=True):
        at, first, by = int(axis) % len(ins[0]), int(begin), int(by)
        size = ins[0][at]
        if isinstance(size, Size) and (by != 1 or (first != 0 and outs[0][at] != size - first and first > 0)):
            return None  # where the slice begins depends on how long the axis is
        low: Dim = first if first >= 0 else size + first
        if isinstance(size, int) and isinstance(low, int):
            low = min(max(low, 0), size if by > 0 else size - 1)
        place = place + low * strides[at]
        read[at] = strides[at] * by
    return [_Copy(list(outs[0]), 0, read, 0, _strides(outs[0]), start=place)]


def _split(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[_Copy] | None:
    axis = step.attributes.get("axis", 0) % len(ins[0])
    strides, found, start = _strides(ins[0]), [], 0
    at: Dim = start
    for i, shape in enumerate(outs):
        found.append(_Copy(list(shape), 0, strides, i, _strides(shape), start=at * strides[axis]))
        at = at + shape[axis]
    return found if all(step.outputs) else None


def _concat(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[_Copy] | None:
    axis = step.attributes["axis"] % len(outs[0])
    strides, found, start = _strides(outs[0]), [], 0
    at: Dim = start
    for i, shape in enumerate(ins):
        found.append(_Copy(list(shape), i, _strides(shape), 0, strides, goal=at * strides[axis]))
        at = at + shape[axis]
    return found


def _gather(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[_Copy] | None:
    if plan.values[step.inputs[1]].dtype not in ("int64", "int32"):
        return None
    shape = ins[0]
    axis = step.attributes.get("axis", 0) % len(shape)
    outer, picks, inner = product(shape[:axis]), product(ins[1]), product(shape[axis + 1 :])
    read: list[Dim] = [shape[axis] * inner, inner, 1]
    return [_Copy([outer, picks, inner], 0, read, 0, [picks * inner, inner, 1], picked=1, length=shape[axis])]


_Rule = Callable[[Plan, Step, Sequence[Sequence[Dim]], Sequence[Sequence[Dim]]], "list[_Copy] | None"]
MOVES: dict[str, _Rule] = {
    "Transpose": _turn, "broadcast": _repeat, "Slice": _slice, "Split": _split, "Concat": _concat, "Gather": _gather,
}  # fmt: skip


def move(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a step that moves elements; None where its shapes or places are not known before it runs."""
    shapes = _shapes(plan, step)
    if shapes is None or (copies := MOVES[step.op](plan, step, *shapes)) is None:
        return None
    copies = [each.merged() for each in copies]
    reach = Access([1], [])
    operands = 1 if step.op in ("Slice", "Split", "Transpose", "broadcast") else len(step.inputs)
    types = [plan.values[each].dtype for each in (*step.inputs[:operands], *step.outputs)]
    most = max(VECTOR // BYTES[types[0]], 1)
    width = min(each.lanes(most) for each in copies)
    parts = []
    for each in copies:
        parts += _part(reach, each, STORED[types[0]], operands)
    parameters = declaration(types, len(step.outputs), reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [f"template <class I, int V> __device__ inline void {name}_body({parameters}) {{", *parts, "}"]
    )  # fmt: skip
    count: Dim = 0
    for each in copies:
        count = count + product(each.sizes)
    # Few elements may be taken from anywhere in many.
    largest = count + product(shapes[0][0]) if step.op in ("Slice", "Gather") else count
    entries = {}
    for wide in indices(largest):
        entry = entries[width, wide] = f"{name}_{'l' if wide else 'i'}{width}"
        text += (
            f'\nextern "C" __global__ void __launch_bounds__({THREADS}) {entry}({parameters}) '
            f"{{ {name}_body<{'long long' if wide else 'int'}, {width}>({passed}); }}"
        )
    return Kernel(head(text) + "\n" + text + "\n", entries, types, reach.numbers, largest, 0, rows=count)


def _part(reach: Access, copy: _Copy, kind: str, operands: int) -> list[str]:
    """A loop over one box."""
    last = len(copy.sizes) - 1
    lines = [
        f"for (I v = (I)blockIdx.x * blockDim.x + threadIdx.x; v < {reach.term(product(copy.sizes))} / V; "
        "v += (I)gridDim.x * blockDim.x) {",
        "  I rest = v * V;",
        f"  I from = {reach.term(copy.start)}, to = {reach.term(copy.goal)};",
    ]
    for axis in range(last, -1, -1):
        size = reach.term(copy.sizes[axis])
        lines.append("  {")
        lines.append(f"    I c = {'rest' if axis == 0 else f'rest % {size}'};")
        lines.append(f"    to += c * {reach.term(copy.written[axis])};")
        if axis == copy.picked:
            # An index that is out of range reads the nearest element: a fault of the caller must not read elsewhere.
            length = reach.term(copy.length)
            lines.append(f"    long long pick = (long long)p1[c]; if (pick < 0) pick += {length};")
            lines.append(f"    pick = pick < 0 ? 0 : pick >= {length} ? {length} - 1 : pick;")
            lines.append("    c = (I)pick;")
        lines.append(f"    from += c * {reach.term(copy.read[axis])};")
        lines.append("  }")
        if axis:
            lines.append(f"  rest /= {size};")
    pack = f"Pack<{kind}, V>"
    lines.append(f"  *({pack}*)(p{operands + copy.result} + to) = *(const {pack}*)(p{copy.source} + from);")
    return [f"  {line}" for line in [*lines, "}"]]
