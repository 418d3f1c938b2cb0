"""Products of matrices take up what stands around them: turned operands, a bias, an activation, a sum.

``gemm``: rows of the left operand times a matrix, plus a bias along the columns, plus either an activation or another
matrix of the result's size: what one call of cuBLASLt computes. Its GELU is the tanh form, so an erf GELU stays out.
``matmul``: a batch of products.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hybrid_infer.backends.native._plan import FLOATS, Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, repeat, sort_steps, splice


def fuse_gemm(plan: Plan) -> None:
    finder = Finder(plan)  # of types and shapes alone, which stay as they are
    plan.steps = [_plain(finder, step) for step in plan.steps]
    repeat(plan, _fuse)
    drop_dead(plan)
    sort_steps(plan)


def _plain(finder: Finder, step: Step) -> Step:
    """Gemm and MatMul in our form, where their types and ranks allow it."""
    if step.op not in ("Gemm", "MatMul") or finder.dtype(step.outputs[0]) not in FLOATS:
        return step
    a, b = finder.shape(step.inputs[0]), finder.shape(step.inputs[1])
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return step
    if step.op == "MatMul":
        op = "gemm" if len(b) == 2 else "matmul"
        return Step(op, step.inputs, step.outputs, {"trans_a": 0, "trans_b": 0})
    at = step.attributes
    if at.get("alpha", 1.0) != 1 or at.get("beta", 1.0) != 1:
        return step
    has_bias = len(step.inputs) > 2 and bool(step.inputs[2])
    if has_bias and not _along_columns(finder, step.inputs[2], step.outputs[0]):
        return step
    attributes: dict[str, Any] = {"trans_a": at.get("transA", 0), "trans_b": at.get("transB", 0)}
    if has_bias:
        attributes["bias"] = 2
    return Step("gemm", step.inputs[: 2 + has_bias], step.outputs, attributes)


def _along_columns(finder: Finder, bias: str, result: str) -> bool:
    """Is `bias` one number for each column of `result`?"""
    shape, whole = finder.shape(bias), finder.shape(result)
    if shape is None or whole is None or not shape or finder.dtype(bias) != finder.dtype(result):
        return False
    return shape[-1] == whole[-1] and all(size == 1 for size in shape[:-1]) and len(shape) <= len(whole)


def _fuse(finder: Finder, step: Step) -> bool:
    if step.op not in ("gemm", "matmul"):
        return False
    return _take_turn(finder, step) or (step.op == "gemm" and _take_epilogue(finder, step))


def _take_turn(finder: Finder, step: Step) -> bool:
    """Read an operand as it lies before its last two axes are turned."""
    for i, key in ((0, "trans_a"), (1, "trans_b")):
        turn = finder.made_by(step.inputs[i], "Transpose")
        shape = finder.shape(step.inputs[i])
        if turn is None or shape is None:
            continue
        rank = len(shape)
        if step.op == "gemm" and i == 0 and rank != 2:
            continue
        if list(turn.attributes.get("perm") or ()) != [*range(rank - 2), rank - 1, rank - 2]:
            continue
        inputs = tuple(turn.inputs[0] if n == i else name for n, name in enumerate(step.inputs))
        flipped = {**step.attributes, key: 1 - step.attributes[key]}
        splice(finder.plan, step, [replace(step, inputs=inputs, attributes=flipped)])
        finder.plan.decide("gemm", step.outputs[0], f"reads operand {i} as it lies, turned")
        return True
    return False


def _take_epilogue(finder: Finder, step: Step) -> bool:
    at = step.attributes
    user = finder.only_user(step.outputs[0])
    if user is None or at.get("activation") or "addend" in at or user.outputs[0] not in finder.plan.values:
        return False
    if user.op == "view":
        return _through_view(finder, step, user) or _sum_past_view(finder, step, user)
    if user.op == "Add" and user.inputs[0] != user.inputs[1]:
        other = next(name for name in user.inputs if name != step.outputs[0])
        if "bias" not in at and _along_columns(finder, other, step.outputs[0]):
            return _merge(finder, step, user, {"bias": len(step.inputs)}, other, "adds its bias")
        whole = finder.shape(other) == finder.shape(step.outputs[0]) == finder.shape(user.outputs[0])
        if whole and finder.dtype(other) == finder.dtype(step.outputs[0]) and not _depends(finder, other, step):
            return _merge(finder, step, user, {"addend": len(step.inputs)}, other, "adds a matrix of its size")
        return False
    if user.op == "Relu":
        return _merge(finder, step, user, {"activation": "relu"}, "", "applies Relu")
    if user.op == "Gelu":
        if user.attributes.get("approximate", "none") == "tanh":
            return _merge(finder, step, user, {"activation": "gelu_tanh"}, "", "applies the tanh form of GELU")
        why = "an erf GELU stays apart: the library has the tanh form"
        note = {"rule": "gemm", "step": user.outputs[0], "why": why}
        if note not in finder.plan.decisions:
            finder.plan.decisions.append(note)
    return False


def _through_view(finder: Finder, step: Step, view: Step) -> bool:
    """``gemm -> view -> add``: a view that keeps the columns moves in front, onto the left operand."""
    before, after = finder.shape(step.outputs[0]), finder.shape(view.outputs[0])
    inner = finder.made_by(step.inputs[0], "view")
    if before is None or after is None or inner is None or step.attributes["trans_a"] or before[-1] != after[-1]:
        return False
    source = finder.shape(inner.inputs[0])
    left = finder.shape(step.inputs[0])
    if source is None or left is None or source[:-1] != after[:-1] or source[-1] != left[-1]:
        return False
    merged = replace(step, inputs=(inner.inputs[0], *step.inputs[1:]), outputs=view.outputs)
    finder.plan.steps = [each for each in finder.plan.steps if each is not step]
    splice(finder.plan, view, [merged])
    finder.plan.decide("gemm", view.outputs[0], "keeps the leading axes, which were regrouped around it")
    return True


def _sum_past_view(finder: Finder, step: Step, view: Step) -> bool:
    """``gemm -> view -> add``: what is added is regrouped instead, as rows of the product."""
    user, before = finder.only_user(view.outputs[0]), finder.shape(step.outputs[0])
    if user is None or user.op != "Add" or before is None or user.inputs[0] == user.inputs[1]:
        return False
    other = next(name for name in user.inputs if name != view.outputs[0])
    whole = finder.shape(other) == finder.shape(view.outputs[0]) == finder.shape(user.outputs[0])
    if not whole or finder.dtype(other) != finder.dtype(step.outputs[0]) or _depends(finder, other, step):
        return False
    plan = finder.plan
    rows, total = plan.fresh(f"{user.outputs[0]}:rows"), plan.fresh(f"{user.outputs[0]}:sum")
    for name in (rows, total):
        plan.values[name] = plan.values[step.outputs[0]]
    plan.steps = [each for each in plan.steps if each is not step and each is not view]
    merged = replace(
        step, inputs=(*step.inputs, rows), outputs=(total,),
        attributes={**step.attributes, "addend": len(step.inputs)},
    )  # fmt: skip
    splice(plan, user, [
        Step("view", (other,), (rows,), {"shape": list(before)}),
        merged,
        Step("view", (total,), user.outputs, {"shape": list(finder.shape(user.outputs[0]) or ())}),
    ])  # fmt: skip
    plan.decide("gemm", user.outputs[0], "adds a matrix of its size")
    return True


def _depends(finder: Finder, name: str, step: Step) -> bool:
    """Is `name` computed from what `step` writes?"""
    seen, stack = set(), [name]
    while stack:
        maker = finder.maker.get(stack.pop())
        if maker is None or id(maker) in seen:
            continue
        if maker is step:
            return True
        seen.add(id(maker))
        stack.extend(maker.reads())
    return False


def _merge(finder: Finder, step: Step, user: Step, attributes: dict[str, Any], operand: str, why: str) -> bool:
    inputs = (*step.inputs, operand) if operand else step.inputs
    merged = Step("gemm", inputs, user.outputs, {**step.attributes, **attributes})
    finder.plan.steps = [each for each in finder.plan.steps if each is not step]
    splice(finder.plan, user, [merged])
    finder.plan.decide("gemm", user.outputs[0], why)
    return True
