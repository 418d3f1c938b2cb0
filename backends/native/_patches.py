"""A convolution whose windows do not overlap is a turn of the image into rows of patches, and one product.

So images become tokens. With few channels a library turns and pads the image, and takes tens of microseconds. The
product's result is in the order of tokens, each with its channels side by side: turns that follow cancel. It is marked
as a ``convolution``: where the framework's convolutions may be rounded to TF32, so may it be.
"""

from __future__ import annotations

from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._rewrite import splice
from hybrid_infer.backends.native._size import Dim, divided, product

#: Channels in such numbers a library's convolutions read as they lie, held last.
MULTIPLE = 8


def cut_patches(plan: Plan) -> int:
    """Rewrite such convolutions; how many there were."""
    found = [(step, counts) for step in plan.steps if step.op == "Conv" and (counts := _counts(plan, step)) is not None]
    for step, counts in found:
        _cut(plan, step, counts)
    return len(found)


def _counts(plan: Plan, step: Step) -> list[Dim] | None:
    """How many patches there are along each axis of the image; None where it is no such convolution."""
    at = step.attributes
    values = [plan.values.get(name) for name in (*step.inputs[:2], step.outputs[0])]
    shapes = [None if value is None else value.shape for value in values]
    x, w, y = shapes
    if x is None or w is None or y is None or plan.values[step.outputs[0]].dtype not in FLOATS:
        return None
    kernel = w[2:]
    if len(x) != len(w) or any(not isinstance(size, int) for size in w[1:]) or product(kernel) == 1:
        return None
    if list(at.get("strides") or [1] * len(kernel)) != list(kernel) or w[1] % MULTIPLE == 0 or w[1] != x[1]:
        return None
    if any(size != 1 for size in at.get("dilations") or ()) or at.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    if any(at.get("pads") or ()):
        return None
    counts = [divided(size, part) for size, part in zip(x[2:], kernel, strict=True)]
    known = [each for each in counts if each is not None]
    return known if len(known) == len(counts) else None


def _cut(plan: Plan, step: Step, counts: list[Dim]) -> None:
    x, w = (plan.values[name] for name in step.inputs[:2])
    result = plan.values[step.outputs[0]]
    assert x.shape is not None and w.shape is not None and result.shape is not None
    items, kernel, count = x.shape[0], w.shape[2:], len(counts)
    inner, outer, patches = product(w.shape[1:]), w.shape[0], product(counts)
    steps: list[Step] = []

    def add(op: str, inputs: tuple[str, ...], suffix: str, shape: list[Dim], **attributes: object) -> str:
        name = plan.fresh(f"{step.outputs[0]}:{suffix}") if suffix else step.outputs[0]
        plan.values[name] = Value(result.dtype, tuple(shape))
        steps.append(Step(op, inputs, (name,), {"shape": shape} if op == "view" else attributes))
        return name

    parted: list[Dim] = [items, x.shape[1]]
    for number, size in zip(counts, kernel, strict=True):
        parted += [number, size]
    order = [0, *range(2, 2 + 2 * count, 2), 1, *range(3, 3 + 2 * count, 2)]
    parts = add("view", step.inputs[:1], "parts", parted)
    turned = add("Transpose", (parts,), "turned", [parted[axis] for axis in order], perm=order)
    rows = add("view", (turned,), "patches", [items, patches, inner])
    taps = add("view", (step.inputs[1],), "taps", [outer, inner])
    bias = {"bias": 2} if len(step.inputs) > 2 and step.inputs[2] else {}
    operands = (rows, taps, *(step.inputs[2:3] if bias else ()))
    tokens = add(
        "gemm", operands, "tokens", [items, patches, outer], trans_a=0, trans_b=1, convolution=1, **bias
    )  # fmt: skip
    flat = add("Transpose", (tokens,), "flat", [items, outer, patches], perm=[0, 2, 1])
    add("view", (flat,), "", list(result.shape))
    splice(plan, step, steps)
    plan.decide("layout", step.outputs[0], "a convolution whose windows do not overlap is a product of its patches")
