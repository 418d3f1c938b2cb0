"""LSTM, GRU and RNN are two steps: a product for all times at once, and what goes from each time to the next.

Of the second one the transposed weights are read, so that the units of a layer, which threads take side by side, find
theirs side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim, known
from hybrid_infer.backends.native._spelling import Spelling, spell

#: How many products each unit takes of its input, and what they go through unless the graph says otherwise.
_CELLS = {"LSTM": (4, ("Sigmoid", "Tanh", "Tanh")), "GRU": (3, ("Sigmoid", "Tanh")), "RNN": (1, ("Tanh",))}

#: Where operands stand: the bias, the lengths, the first states; peepholes are not computed.
_MORE = {"b": 3, "lengths": 4, "h": 5, "c": 6}


def spell_recurrent(plan: Plan) -> None:
    spell(plan, _spelled)


def _spelled(plan: Plan, step: Step) -> list[Step]:
    if step.op not in _CELLS:
        return [step]
    gates, usual = _CELLS[step.op]
    told, inputs = step.attributes, (*step.inputs, *[""] * 8)
    x, w, r = (plan.values.get(name) for name in inputs[:3])
    if x is None or w is None or r is None or x.shape is None or w.shape is None or r.shape is None:
        return [step]
    activations = tuple(told.get("activations") or ())
    if step.op == "RNN" and set(activations) == {"Relu"}:
        usual = ("Relu",)
    if {x.dtype, w.dtype, r.dtype} != {x.dtype} or x.dtype not in FLOATS or activations not in ((), usual, usual * 2):
        return [step]
    if inputs[7] or any(told.get(name) for name in ("layout", "clip", "input_forget")):
        return [step]
    if step.op == "GRU" and not told.get("linear_before_reset"):
        return [step]
    (time, batch, width), directions, hidden = x.shape, w.shape[0], r.shape[2]
    sizes: Sequence[Dim] = (time, batch, width)
    if not isinstance(directions, int) or not isinstance(hidden, int) or not all(known(size) for size in sizes):
        return [step]
    made, wide = Spelling(plan, next(filter(None, step.outputs))), gates * hidden
    rows = made.view(inputs[0], "rows", [time * batch, width])
    flat = made.view(inputs[1], "weights", [directions * wide, width])
    turned = made.add("Transpose", (flat,), "turned", Value(x.dtype, (width, directions * wide)), perm=[1, 0])
    given = made.add("MatMul", (rows, turned), "given", Value(x.dtype, (time * batch, directions * wide)))
    given = made.view(given, "by time", [time, batch, directions, wide])
    back = made.add("Transpose", (inputs[2],), "recurrent", Value(x.dtype, (directions, hidden, wide)), perm=[0, 2, 1])
    there = [part for part, i in _MORE.items() if inputs[i]]
    operands = (given, back, *(inputs[_MORE[part]] for part in there))
    attributes = {
        "cell": step.op, "activation": usual[0], "direction": told.get("direction", "forward"), "there": there,
    }  # fmt: skip
    made.steps.append(Step("recurrence", operands, step.outputs, attributes))
    plan.decide("recurrent", made.result, f"{step.op} is a product for all times, and a step from each to the next")
    return made.steps
