"""BatchNormalization in evaluation is elementwise: spelled out, so that it joins what stands behind it."""

from __future__ import annotations

import numpy as np

from hybrid_infer.backends.native._plan import NUMPY, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim


def spell_batchnorm(plan: Plan) -> None:
    steps: list[Step] = []
    for step in plan.steps:
        steps += _spelled(plan, step) or [step]
    plan.steps = steps


def _spelled(plan: Plan, step: Step) -> list[Step] | None:
    """``(x - mean) * (scale / sqrt(variance + epsilon)) + bias``, statistics read along the channels."""
    value = plan.values.get(step.inputs[0]) if step.op == "BatchNormalization" else None
    if value is None or value.shape is None or len(value.shape) < 2 or any(step.outputs[1:]):
        return None
    last = bool(step.attributes.get("channels_last"))
    channels: tuple[Dim, ...] = value.shape[-1:] if last else (value.shape[1], *[1] * (len(value.shape) - 2))
    result = step.outputs[0]
    steps: list[Step] = []

    def add(op: str, inputs: tuple[str, ...], suffix: str, of: Value, **attributes: object) -> str:
        name = plan.fresh(f"{result}:{suffix}") if suffix else result
        plan.values[name] = of
        steps.append(Step(op, inputs, (name,), attributes))
        return name

    views = {}
    for what, name in zip(("scale", "bias", "mean", "variance"), step.inputs[1:], strict=True):
        dtype = plan.values[name].dtype
        views[what] = name if last else add("view", (name,), what, Value(dtype, channels), shape=list(channels))
    own = plan.values[step.inputs[4]].dtype
    epsilon = plan.fresh(f"{result}:epsilon")
    plan.constants[epsilon] = np.array(step.attributes.get("epsilon", 1e-5), NUMPY[own])
    plan.values[epsilon] = Value(own, ())
    wide = Value(own, channels)
    root = add("Sqrt", (add("Add", (views["variance"], epsilon), "shifted", wide),), "deviation", wide)
    factor = add("Div", (views["scale"], root), "factor", wide)
    centred = add("Sub", (step.inputs[0], views["mean"]), "centred", value)
    add("Add", (add("Mul", (centred, factor), "scaled", value), views["bias"]), "", value)
    plan.decide("batchnorm", result, "is elementwise, and joins what stands behind it")
    return steps
