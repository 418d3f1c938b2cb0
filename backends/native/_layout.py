"""Which way round convolutions hold their channels: last in half precision, where tensor cores want them; else first.

A convolution that takes channels last is put between turns. Turns move down through what is elementwise, through
poolings and means over the image, and those that meet cancel: of a residual network one is left at either end. Weights
are turned at each call, since they are read where they lie; that is little beside the convolution. An image of few
channels is turned too where what is made of it leads to such a convolution: it is small beside what is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hybrid_infer.backends.native import _code, _views
from hybrid_infer.backends.native._duplicates import merge_duplicates
from hybrid_infer.backends.native._patches import MULTIPLE, cut_patches
from hybrid_infer.backends.native._plan import Plan, Step, Value
from hybrid_infer.backends.native._rewrite import Finder, repeat, sort_steps, splice
from hybrid_infer.backends.native._size import Dim

#: (n, c, h, w) to (n, h, w, c), and back.
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]

#: What is told where its channels are.
_TOLD = ("MaxPool", "AveragePool", "BatchNormalization")

#: What leads from one convolution to another, each holding its channels where the other does.
_LEADING = frozenset({*_TOLD, *_code.FUSABLE, "view", "InstanceNormalization", "GroupNormalization"})


def choose_layout(plan: Plan) -> None:
    """Turn what gains by it to channels last; a convolution says which way round it is, and why."""
    cut = cut_patches(plan)
    convolutions = [step for step in plan.steps if step.op in ("Conv", "ConvTranspose")]
    reasons = [_reason(plan, step) for step in convolutions]
    gaining = [step for step, why in zip(convolutions, reasons, strict=True) if not why]
    finder, turned = Finder(plan), []
    for step, why in zip(convolutions, reasons, strict=True):
        if not why or (why == _FEW and _leads(finder, step, gaining)):
            turned.append(step)
            said = "as tensor cores want them" if not why else "as what it leads to does"
            plan.decide("layout", step.outputs[0], f"a convolution holds its channels last, {said}")
        else:
            plan.decide("layout", step.outputs[0], f"a convolution holds its channels first: {why}")
    if not turned and not cut:
        return
    for step in turned:
        _turn(plan, step)
    repeat(plan, lambda finder, step: _down(finder, step) or _past_view(finder, step))
    repeat(plan, _views._simplify)
    merge_duplicates(plan)
    sort_steps(plan)
    left = sum(step.op == "Transpose" for step in plan.steps)
    plan.decide("layout", "", f"{len(turned)} convolutions hold their channels last, with {left} turns left")


_FEW = f"the channels that it reads are no multiple of {MULTIPLE}"


def _reason(plan: Plan, step: Step) -> str:
    """Why a convolution gains nothing by holding its channels last; empty if it does."""
    values = [plan.values.get(name) for name in (*step.inputs, step.outputs[0])]
    shapes = [None if value is None else value.shape for value in values]
    dtype = plan.values[step.inputs[0]].dtype
    x, w = shapes[0], shapes[1]
    if dtype not in ("float16", "bfloat16"):
        return f"{dtype} gains nothing by another order"
    if x is None or w is None or shapes[-1] is None or len(x) != 4:
        return "it is not over images of a known rank"
    told = step.attributes
    if told.get("group", 1) != 1 or told.get("auto_pad", "NOTSET") != "NOTSET" or told.get("output_shape"):
        return "it has groups"
    if not isinstance(w[0], int) or w[0] % MULTIPLE or not isinstance(w[1], int):
        return f"its channels are no multiple of {MULTIPLE}"
    return "" if not w[1] % MULTIPLE else _FEW if step.op == "Conv" else f"its channels are no multiple of {MULTIPLE}"


def _leads(finder: Finder, step: Step, convolutions: Sequence[Step]) -> bool:
    """Does what a convolution gives become what one of those convolutions reads, over the same axes?"""
    seen, stack = set[int](), [step]
    while stack:
        for user in finder.users.get(stack.pop().outputs[0], ()):
            if any(user is each for each in convolutions):
                return True
            if id(user) not in seen and user.op in _LEADING:
                seen.add(id(user))
                stack.append(user)
    return False


def _turned(plan: Plan, name: str, order: list[int], steps: list[Step]) -> str:
    """A value with its axes in another order."""
    value = plan.values[name]
    made = plan.fresh(f"{name}:last")
    plan.values[made] = Value(value.dtype, _shape(value, order))
    steps.append(Step("Transpose", (name,), (made,), {"perm": order}))
    return made


def _shape(value: Value, order: list[int]) -> tuple[Dim, ...]:
    assert value.shape is not None
    return tuple(value.shape[axis] for axis in order)


def _between(plan: Plan, step: Step, inner: Step, before: list[Step]) -> None:
    """Put `inner`, which writes what `step` writes with channels last, in its place."""
    name = plan.fresh(f"{step.outputs[0]}:last")
    plan.values[name] = Value(plan.values[step.outputs[0]].dtype, _shape(plan.values[step.outputs[0]], LAST))
    back = Step("Transpose", (name,), step.outputs[:1], {"perm": FIRST})
    splice(plan, step, [*before, replace(inner, outputs=(name,)), back])


def _turn(plan: Plan, step: Step) -> None:
    before: list[Step] = []
    names = [_turned(plan, name, LAST, before) for name in step.inputs[:2]]
    inner = replace(step, inputs=(*names, *step.inputs[2:]), attributes={**step.attributes, "channels_last": 1})
    _between(plan, step, inner, before)


def _below(finder: Finder, name: str) -> str:
    """What `name` is a turn of to channels first; empty if it is none."""
    turn = finder.made_by(name, "Transpose")
    return turn.inputs[0] if turn is not None and list(turn.attributes.get("perm") or ()) == FIRST else ""


def _down(finder: Finder, step: Step) -> bool:
    plan = finder.plan
    value = plan.values.get(step.outputs[0]) if step.outputs else None
    if value is None or value.shape is None:
        return False
    if step.op in ("ReduceMean", "ReduceMax") and (inner := _below(finder, step.inputs[0])):
        return _over_image(finder, step, inner)
    if len(value.shape) != 4:
        return False
    if step.op in _TOLD and not any(step.outputs[1:]) and (inner := _below(finder, step.inputs[0])):
        attributes = {**step.attributes, "channels_last": 1}
        _between(plan, step, replace(step, inputs=(inner, *step.inputs[1:]), attributes=attributes), [])
        return True
    if step.op not in _code.FUSABLE or len(step.outputs) != 1 or "" in step.inputs:
        return False
    return _elementwise(finder, step, value.shape)


def _past_view(finder: Finder, step: Step) -> bool:
    """Images that are read as rows of pixels are turned as images are: these turns meet others, and cancel."""
    if step.op not in ("view", "Transpose"):
        return False
    inner = finder.made_by(step.inputs[0], "view" if step.op == "Transpose" else "Transpose")
    rows = step if step.op == "Transpose" else inner
    if inner is None or rows is None or list(rows.attributes.get("perm") or ()) != [0, 2, 1]:
        return False
    source, result = finder.shape(inner.inputs[0]), finder.shape(step.outputs[0])
    if source is None or result is None:
        return False
    image, other = (source, result) if step.op == "Transpose" else (result, source)
    if len(image) != 4 or len(other) != 3 or other != (image[0], image[2] * image[3], image[1]):
        return False
    plan, value = finder.plan, finder.plan.values[step.outputs[0]]
    last = tuple(image[axis] for axis in LAST)
    name = plan.fresh(f"{step.outputs[0]}:image")
    plan.values[name] = replace(value, shape=last)
    if step.op == "Transpose":
        new = [
            Step("Transpose", inner.inputs, (name,), {"perm": LAST}),
            Step("view", (name,), step.outputs, {"shape": list(result)}),
        ]
    else:
        new = [
            Step("view", inner.inputs, (name,), {"shape": list(last)}),
            Step("Transpose", (name,), step.outputs, {"perm": FIRST}),
        ]
    splice(plan, step, new)
    return True


def _over_image(finder: Finder, step: Step, inner: str) -> bool:
    """A mean over height and width is one over the second and third axis."""
    plan = finder.plan
    axes = plan.constants.get(step.inputs[1]) if len(step.inputs) > 1 else None
    if axes is None or sorted(int(axis) % 4 for axis in axes.reshape(-1)) != [2, 3]:
        return False
    value, shape = plan.values[step.outputs[0]], plan.values[inner].shape
    assert shape is not None and value.shape is not None
    wanted = plan.fresh(f"{step.outputs[0]}:axes")
    plan.constants[wanted] = np.array([1, 2])
    plan.values[wanted] = Value("int64", (2,))
    made = plan.fresh(f"{step.outputs[0]}:mean")
    plan.values[made] = Value(value.dtype, (shape[0], shape[3]))
    splice(plan, step, [
        Step(step.op, (inner, wanted), (made,), {"keepdims": 0}),
        Step("view", (made,), step.outputs, {"shape": list(value.shape)}),
    ])  # fmt: skip
    return True


def _elementwise(finder: Finder, step: Step, shape: tuple[Dim, ...]) -> bool:
    """An elementwise step reads what lies below the turns. What is not turned is, where fewer operands are so."""
    plan = finder.plan
    kinds = [_kind(finder, name, shape) for name in step.inputs]
    turned, whole = kinds.count("turned"), kinds.count("whole")
    if not turned or "other" in kinds or whole > turned:
        return False
    before: list[Step] = []
    names = []
    for name, kind in zip(step.inputs, kinds, strict=True):
        if kind == "turned":
            names.append(_below(finder, name))
        elif kind == "whole":
            names.append(_turned(plan, name, LAST, before))
        elif kind == "channels":
            made = plan.fresh(f"{name}:channels")
            own = finder.shape(name) or ()
            spread = (own[0], 1, 1, shape[1]) if len(own) == 4 and own[0] != 1 else (shape[1],)
            plan.values[made] = Value(plan.values[name].dtype, spread)
            before.append(Step("view", (name,), (made,), {"shape": list(spread)}))
            names.append(made)
        else:
            names.append(name)
    _between(plan, step, replace(step, inputs=tuple(names)), before)
    return True


def _kind(finder: Finder, name: str, shape: tuple[Dim, ...]) -> str:
    """How an operand is spread over images: whole, or along the channels (of each or of all), or one number for all."""
    own = finder.shape(name)
    if own is None:
        return "other"
    if _below(finder, name) and own == shape:
        return "turned"
    if own == shape:
        return "whole"
    if all(size == 1 for size in own):
        return "number"
    padded = (*([1] * (4 - len(own))), *own)
    return "channels" if padded[0] in (1, shape[0]) and padded[1:] == (shape[1], 1, 1) else "other"
