"""Rotary positions, ``x * cos + rotate_half(x) * sin``, become elementwise: halves of a head are an axis of their own.

``rotate_half`` is ``concat(-x[h:], x[:h])``: with the halves along an axis it is x read backwards along that axis,
times -1 and 1 ("RoFormer", arXiv:2104.09864, in the form of GPT-NeoX and LLaMA). No concatenation is left, and what
reads x backwards reads it where it lies (see `_in_place`).
"""

from __future__ import annotations

import numpy as np

from hybrid_infer.backends.native._plan import FLOATS, NUMPY, Plan, Step, Value
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, repeat, splice
from hybrid_infer.backends.native._size import Dim
from hybrid_infer.backends.native._window import moved, whole


def fuse_rotary(plan: Plan) -> None:
    if count := repeat(plan, _fuse):
        plan.decide("rotary", "", f"{count} rotations of heads are elementwise, halves along an axis of their own")
    drop_dead(plan)


def _fuse(finder: Finder, step: Step) -> bool:
    source = _rotated(finder, step)
    product = finder.only_user(step.outputs[0]) if source else None
    total = finder.only_user(product.outputs[0]) if product is not None and product.op == "Mul" else None
    if product is None or total is None or total.op != "Add":
        return False
    shape, plan = finder.shape(source), finder.plan
    other = next((name for name in total.inputs if name != product.outputs[0]), "")
    straight = finder.made_by(other, "Mul")
    if straight is not None and (not finder.only_for(other, total) or finder.shape(other) != shape):
        straight = None
    sine = next((name for name in product.inputs if name != step.outputs[0]), "")
    operands = [source, sine, *(straight.inputs if straight is not None else (other,))]
    if not shape or any(finder.shape(name) != shape for name in (product.outputs[0], total.outputs[0])):
        return False
    halves = {name: _halves(finder, name, shape[-1]) for name in operands}
    if any(each is None for each in halves.values()):
        return False
    made: list[Step] = []
    dtype = finder.dtype(source)

    def add(op: str, inputs: tuple[str, ...], what: str, sizes: tuple[Dim, ...], **attributes: object) -> str:
        name = plan.fresh(f"{total.outputs[0]}:{what}")
        plan.values[name] = Value(dtype, sizes)
        made.append(Step(op, inputs, (name,), attributes))
        return name

    def constant(what: str, array: np.ndarray, kind: str) -> str:
        name = plan.fresh(f"{total.outputs[0]}:{what}")
        plan.constants[name], plan.values[name] = array, Value(kind, array.shape)
        return name

    apart = {
        name: add("view", (name,), f"{i}", sizes, shape=list(sizes)) if sizes else name
        for i, (name, sizes) in enumerate(halves.items()) if sizes is not None
    }  # fmt: skip
    places = {"from": 1, "to": -(2**62), "axis": len(shape) - 1, "by": -1}
    given = tuple(constant(what, np.array([place], np.int64), "int64") for what, place in places.items())
    split = (*shape[:-1], 2, shape[-1] // 2)
    sign = constant("sign", np.array([[-1], [1]], NUMPY[dtype]), dtype)
    turned = add("Mul", (add("Slice", (apart[source], *given), "back", split), sign), "turned", split)
    second = add("Mul", (turned, apart[sine]), "sine", split)
    if straight is not None:
        first = add("Mul", tuple(apart[name] for name in straight.inputs), "cosine", split)
    else:
        first = apart[other]
    whole_again = add("Add", (first, second), "sum", split)
    made.append(Step("view", (whole_again,), total.outputs, {"shape": list(shape)}))
    splice(plan, total, made)
    drop_dead(plan)
    return True


def _rotated(finder: Finder, step: Step) -> str:
    """What a step rotates by half; empty if it does not."""
    if step.op != "Concat" or len(step.inputs) != 2 or finder.dtype(step.outputs[0]) not in FLOATS:
        return ""
    names = (_negated(finder, step.inputs[0]), step.inputs[1])
    first, second = (finder.made_by(name, "Slice", "Split") for name in names)
    shape = None if first is None else finder.shape(first.inputs[0])
    if first is None or second is None or shape is None or second.inputs[0] != first.inputs[0]:
        return ""
    if not isinstance(shape[-1], int):
        return ""
    length, last = shape[-1], len(shape) - 1
    if length % 2 or step.attributes["axis"] % len(shape) != last:
        return ""
    wanted = (whole(shape).cut(last, length // 2, length // 2), whole(shape).cut(last, 0, length // 2))
    for maker, name, window in zip((first, second), names, wanted, strict=True):
        if moved(finder.plan, maker, maker.outputs.index(name), whole(shape)) != window:
            return ""
    return second.inputs[0]


def _negated(finder: Finder, name: str) -> str:
    """What `name` is the negative of, as torch writes it, or Paddle (times -1, plus 0); empty if it is none."""
    step = finder.made_by(name, "Neg", "Add", "Mul")
    if step is not None and step.op == "Add":
        pair = finder.operand_and_number(step)
        step = finder.made_by(pair[0], "Mul") if pair is not None and pair[1] == 0 else None
    if step is None or step.op == "Neg":
        return "" if step is None else step.inputs[0]
    pair = finder.operand_and_number(step)
    return pair[0] if pair is not None and pair[1] == -1 else ""


def _halves(finder: Finder, name: str, length: Dim) -> tuple[Dim, ...] | None:
    """The shape of an operand with the halves along an axis; empty for a number, None where it cannot be."""
    shape = finder.shape(name)
    if shape is None or not shape:
        return shape
    if shape[-1] not in (1, length):
        return None
    return (*shape[:-1], 1, 1) if shape[-1] == 1 else (*shape[:-1], 2, length // 2)
