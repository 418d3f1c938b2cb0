"""Recognises LayerNorm, RMSNorm and softmax that a graph spells out.

``x - mean`` squared by Pow or Mul, a mean over the last axis, an epsilon, a root, then a quotient or a product with the
reciprocal; ``exp(x - max) / sum``.
"""

from __future__ import annotations

from typing import Any

from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import Finder, drop_dead, exchange, repeat


def fuse_norms(plan: Plan) -> None:
    repeat(plan, _fuse)
    drop_dead(plan)


def _fuse(finder: Finder, step: Step) -> bool:
    return _norm(finder, step) or _softmax(finder, step)


def _norm(finder: Finder, step: Step) -> bool:
    """``c / sqrt(mean(c * c) + e)``, where c is x (RMSNorm) or x - mean(x) (LayerNorm)."""
    found = _over_root(finder, step)
    if found is None:
        return False
    centred, root = found
    total = finder.made_by(root.inputs[0], "Add")
    parts = None if total is None else finder.operand_and_number(total)
    mean = None if parts is None else _mean(finder, parts[0])
    square = None if mean is None else finder.made_by(mean, "Pow", "Mul")
    if parts is None or square is None or not _squares(finder, square, centred):
        return False
    plan = finder.plan
    minus = finder.made_by(centred, "Sub")
    average = None if minus is None else _mean(finder, minus.inputs[1])
    if minus is not None and average == minus.inputs[0]:
        op, source = "LayerNormalization", minus.inputs[0]
    else:
        op, source = "RMSNormalization", centred
    if finder.shape(source) != finder.shape(step.outputs[0]):
        return False
    fused = Step(op, (source, ""), step.outputs, {"axis": -1, "epsilon": float(parts[1])})
    plan.decide("norm", step.outputs[0], f"spelled out, is one {op}")
    exchange(plan, [step], fused)
    return True


def _over_root(finder: Finder, step: Step) -> tuple[str, Step] | None:
    """What is divided by a square root, and the root."""
    if step.op == "Div":
        root = finder.made_by(step.inputs[1], "Sqrt")
        return None if root is None else (step.inputs[0], root)
    if step.op != "Mul":
        return None
    for a, b in (step.inputs, step.inputs[::-1]):
        inverse = finder.made_by(b, "Reciprocal", "Div", "Pow")
        if inverse is None:
            continue
        if inverse.op == "Div" and finder.number(inverse.inputs[0]) != 1:
            continue
        root = finder.made_by(inverse.inputs[-1], "Sqrt") if inverse.op != "Pow" else None
        if inverse.op == "Pow" and finder.number(inverse.inputs[1]) == -0.5:
            return a, Step("Sqrt", inverse.inputs[:1], inverse.outputs)
        if root is not None:
            return a, root
    return None


def _mean(finder: Finder, name: str) -> str | None:
    """What `name` is the mean of, over the last axis, which is kept."""
    step = finder.made_by(name, "ReduceMean")
    if step is None or not step.attributes.get("keepdims", 1) or len(step.inputs) < 2:
        return None
    shape, axes = finder.shape(step.inputs[0]), finder.plan.constants.get(step.inputs[1])
    if shape is None or axes is None or [int(axis) % len(shape) for axis in axes] != [len(shape) - 1]:
        return None
    return step.inputs[0]


def _squares(finder: Finder, step: Step, name: str) -> bool:
    if step.op == "Mul":
        return step.inputs == (name, name)
    return step.inputs[0] == name and finder.number(step.inputs[1]) == 2


def _softmax(finder: Finder, step: Step) -> bool:
    if step.op != "Div":
        return False
    exponent, total = finder.made_by(step.inputs[0], "Exp"), finder.made_by(step.inputs[1], "ReduceSum")
    minus = None if exponent is None else finder.made_by(exponent.inputs[0], "Sub")
    top = None if minus is None else finder.made_by(minus.inputs[1], "ReduceMax")
    if exponent is None or total is None or minus is None or top is None:
        return False
    axes = [_axes(finder, each) for each in (total, top)]
    if total.inputs[0] != step.inputs[0] or top.inputs[0] != minus.inputs[0] or axes[0] is None or axes[0] != axes[1]:
        return False
    finder.plan.decide("norm", step.outputs[0], "spelled out, is one Softmax")
    exchange(finder.plan, [step], Step("Softmax", minus.inputs[:1], step.outputs, {"axis": axes[0]}))
    return True


def _axes(finder: Finder, step: Step) -> Any:
    """The one axis that a step reduces and keeps."""
    shape = finder.shape(step.inputs[0])
    axes = finder.plan.constants.get(step.inputs[1]) if len(step.inputs) > 1 else None
    if shape is None or axes is None or axes.size != 1 or not step.attributes.get("keepdims", 1):
        return None
    return int(axes.reshape(-1)[0]) % len(shape)
