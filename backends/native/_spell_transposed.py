"""What a transposed convolution adds to its channels is a step of its own, which joins what stands behind it."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._spelling import Spelling, spell


def spell_transposed(plan: Plan) -> None:
    spell(plan, _spelled)


def _spelled(plan: Plan, step: Step) -> Sequence[Step]:
    biased = step.op == "ConvTranspose" and len(step.inputs) == 3 and step.inputs[2]
    value = plan.values.get(step.outputs[0]) if biased else None
    if value is None or value.shape is None:
        return [step]
    made = Spelling(plan, step.outputs[0])
    spread = made.add(step.op, step.inputs[:2], "spread", value, **step.attributes)
    bias = made.view(step.inputs[2], "bias", (value.shape[1], *[1] * (len(value.shape) - 2)))
    made.add("Add", (spread, bias), "", value)
    return made.steps
