"""CUDA C for steps that only move elements: turns, slices, parts, joins, repetitions, rows picked by index.

Each is one or more copies between strided boxes; all copies of a step are one launch. A thread moves several elements
at a time where both sides keep the innermost axis whole; what turns it goes through shared memory (see `_cuda_runs` and
`_cuda_turn`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hybrid_infer.backends.native._cuda_access import VECTOR, Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_box import Box
from hybrid_infer.backends.native._cuda_elementwise import THREADS
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._cuda_runs import turn_runs
from hybrid_infer.backends.native._cuda_turn import turn
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, product, strides
from hybrid_infer.backends.native._window import moved, whole


def _shapes(plan: Plan, step: Step) -> tuple[list[Sequence[Dim]], list[Sequence[Dim]]] | None:
    """The shapes of operands and results, if all are known."""
    found: list[list[Sequence[Dim]]] = []
    for names in (step.inputs, step.outputs):
        shapes = [plan.values[name].shape if name in plan.values else None for name in names if name]
        found.append([shape for shape in shapes if shape is not None])
        if len(found[-1]) != len(shapes):
            return None
    return found[0], found[1]


def _seen(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[Box] | None:
    """What only turns, cuts or repeats its operand."""
    found = [moved(plan, step, i, whole(ins[0])) if name else None for i, name in enumerate(step.outputs)]
    boxes = [each for each in found if each is not None]
    if len(boxes) < len(found):
        return None
    return [
        Box(list(box.sizes), 0, list(box.strides), i, strides(box.sizes), start=box.start)
        for i, box in enumerate(boxes)
    ]


def _concat(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[Box] | None:
    axis = step.attributes["axis"] % len(outs[0])
    written, found, start = strides(outs[0]), [], 0
    at: Dim = start
    for i, shape in enumerate(ins):
        found.append(Box(list(shape), i, strides(shape), 0, written, goal=at * written[axis]))
        at = at + shape[axis]
    return found


def _gather(plan: Plan, step: Step, ins: Sequence[Sequence[Dim]], outs: Sequence[Sequence[Dim]]) -> list[Box] | None:
    if plan.values[step.inputs[1]].dtype not in ("int64", "int32"):
        return None
    shape = ins[0]
    axis = step.attributes.get("axis", 0) % len(shape)
    outer, picks, inner = product(shape[:axis]), product(ins[1]), product(shape[axis + 1 :])
    read: list[Dim] = [shape[axis] * inner, inner, 1]
    return [Box([outer, picks, inner], 0, read, 0, [picks * inner, inner, 1], picked=1, length=shape[axis])]


_Rule = Callable[[Plan, Step, Sequence[Sequence[Dim]], Sequence[Sequence[Dim]]], "list[Box] | None"]
MOVES: dict[str, _Rule] = {
    "Transpose": _seen, "broadcast": _seen, "Slice": _seen, "Split": _seen, "Concat": _concat, "Gather": _gather,
}  # fmt: skip


def move(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a step that moves elements; None where its shapes or places are not known before it runs."""
    shapes = _shapes(plan, step)
    if shapes is None or (copies := MOVES[step.op](plan, step, *shapes)) is None:
        return None
    copies = [each.merged() for each in copies]
    if len(copies) == 1 and copies[0].crossed() is not None:
        return turn_runs(plan, step, name, copies[0]) or turn(plan, step, name, copies[0])
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
    entries, points = entry_points(name, parameters, passed, indices(largest), THREADS, [width])
    return Kernel(head(text) + "\n" + text + points + "\n", entries, types, reach.numbers, largest, 0, rows=count)


def _part(reach: Access, copy: Box, kind: str, operands: int) -> list[str]:
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
