"""BatchNormalization in evaluation is elementwise: spelled out, so that it joins what stands behind it."""

from __future__ import annotations

from hybrid_infer.backends.native._plan import Plan, Step, Value
from hybrid_infer.backends.native._size import Dim
from hybrid_infer.backends.native._spelling import Spelling, spell


def spell_batchnorm(plan: Plan) -> None:
    spell(plan, _spelled)


def _spelled(plan: Plan, step: Step) -> list[Step]:
    """``(x - mean) * (scale / sqrt(variance + epsilon)) + bias``, statistics read along the channels."""
    value = plan.values.get(step.inputs[0]) if step.op == "BatchNormalization" else None
    if value is None or value.shape is None or len(value.shape) < 2 or any(step.outputs[1:]):
        return [step]
    last = bool(step.attributes.get("channels_last"))
    channels: tuple[Dim, ...] = value.shape[-1:] if last else (value.shape[1], *[1] * (len(value.shape) - 2))
    made = Spelling(plan, step.outputs[0])
    views = {}
    for what, name in zip(("scale", "bias", "mean", "variance"), step.inputs[1:], strict=True):
        views[what] = name if last else made.view(name, what, channels)
    own = plan.values[step.inputs[4]].dtype
    epsilon = made.constant("epsilon", step.attributes.get("epsilon", 1e-5), own)
    wide = Value(own, channels)
    root = made.add("Sqrt", (made.add("Add", (views["variance"], epsilon), "shifted", wide),), "deviation", wide)
    factor = made.add("Div", (views["scale"], root), "factor", wide)
    centred = made.add("Sub", (step.inputs[0], views["mean"]), "centred", value)
    made.add("Add", (made.add("Mul", (centred, factor), "scaled", value), views["bias"]), "", value)
    plan.decide("batchnorm", made.result, "is elementwise, and joins what stands behind it")
    return made.steps
