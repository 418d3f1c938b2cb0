"""Convolutions that take up the elementwise step that alone reads them, its arithmetic done before the sum is rounded.

A convolution with an ``epilogue`` has its operands behind its own, from ``first`` on: the body's operand 0 is the sum
(with the bias), operand k the step's operand ``first + k - 1``, read in ``views[k - 1]``. Which convolutions are made
so is no pass of the planner's: where it pays, and whether a library takes it, shows on a GPU alone (see
`hybrid_infer.backends.native._fused_convolutions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hybrid_infer.backends.native import _memory
from hybrid_infer.backends.native._plan import Plan, Step, Value
from hybrid_infer.backends.native._rewrite import drop_dead
from hybrid_infer.backends.native._window import given

#: What a body may consist of: what libraries compute as we do, of each element alone.
INSTRUCTIONS = frozenset({
    "Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "Neg", "Abs", "Exp", "Erf", "Tanh", "Sigmoid", "Relu", "Gelu",
    "Swish", "Cast",
})  # fmt: skip

_HALVES = ("float16", "bfloat16")

#: Operands of a body at most: of two convolutions with batch norms and their sum there are nine.
_MOST = 12


class Pair(NamedTuple):
    """A convolution, the elementwise step that reads it, and both in one. ``numbers``: new constants of that."""

    convolution: Step
    elementwise: Step
    fused: Step
    numbers: dict[str, Any]


def pairs(plan: Plan) -> list[Pair]:
    """What may become one step each; of several convolutions that one step reads, the last to be computed."""
    users, outputs = plan.uses(), frozenset(plan.outputs)
    found: dict[int, Pair] = {}
    for step in plan.steps:
        if step.op != "Conv" or "epilogue" in step.attributes or len(step.outputs) != 1:
            continue
        result = step.outputs[0]
        readers = users.get(result, [])
        if len(readers) == 1 and result not in outputs and (made := _pair(plan, step, readers[0])) is not None:
            found[id(readers[0])] = made
    return list(found.values())


def fuse(plan: Plan, chosen: Iterable[Pair]) -> None:
    """Put one step in the place of two, and plan the memory anew."""
    by, gone = {id(each.elementwise): each for each in chosen}, set[int]()
    for each in by.values():
        gone.add(id(each.convolution))
        for name, array in each.numbers.items():
            plan.constants[name] = array
            plan.values[name] = Value("float32", array.shape)
    plan.steps = [by[id(s)].fused if id(s) in by else s for s in plan.steps if id(s) not in gone]
    drop_dead(plan)
    plan.decisions = [each for each in plan.decisions if each["rule"] != "memory"]
    _memory.plan_memory(plan)


def _pair(plan: Plan, conv: Step, step: Step) -> Pair | None:
    if step.op != "elementwise" or len(step.outputs) != 1 or any(given(step)) or any(given(conv)):
        return None
    result, at = conv.outputs[0], step.attributes
    value = plan.values[result]
    shape = value.fixed()
    own = [plan.values.get(name) for name in (*conv.inputs, result, *step.outputs)]
    if shape is None or 0 in shape or value.dtype not in _HALVES or not 2 <= len(conv.inputs) <= 3:
        return None
    if any(each is None or each.dtype != value.dtype or each.fixed() is None for each in own):
        return None
    if tuple(at["space"]) != shape or tuple(at["outputs"][0][1]) != shape or len(step.inputs) > _MOST:
        return None
    where = step.inputs.index(result)
    others = [i for i in range(len(step.inputs)) if i != where]
    if tuple(at["views"][where]) != shape or not all(_spread(plan, step, i, shape) for i in others):
        return None
    if not all(_computed(op, kind, attributes) for op, _, kind, attributes in at["code"]):
        return None
    return _joined(plan, conv, step, where, others)


def _spread(plan: Plan, step: Step, i: int, shape: Sequence[int]) -> bool:
    """Is an operand a float that is read for every element, or for all along some axes?"""
    view, value = step.attributes["views"][i], plan.values[step.inputs[i]]
    if value.dtype not in (*_HALVES, "float32") or value.fixed() is None or len(view) > len(shape):
        return False
    # Of a library's own type, or that in which it computes.
    same = value.dtype in ("float32", plan.values[step.outputs[0]].dtype)
    return same and all(size in (1, full) for size, full in zip(view[::-1], shape[::-1], strict=False))


def _computed(op: str, dtype: str, attributes: dict[str, Any]) -> bool:
    if op not in INSTRUCTIONS or dtype not in (*_HALVES, "float32"):
        return False
    # A cast to less rounds in the middle; one to float32 does nothing where all is computed in that.
    return (op != "Cast" or dtype == "float32") and (op != "Swish" or attributes.get("alpha", 1.0) == 1.0)


def _joined(plan: Plan, conv: Step, step: Step, where: int, others: Sequence[int]) -> Pair:
    at, first = step.attributes, len(conv.inputs)
    operands, views = [step.inputs[i] for i in others], [list(at["views"][i]) for i in others]
    place = {where: 0, **{i: k for k, i in enumerate(others, 1)}}
    numbers: dict[str, Any] = {}

    def argument(each: Any) -> Any:
        if each[0] == "is":
            name = _number(each[1], numbers)
            if name not in operands:
                operands.append(name)
                views.append([1])
            return ["in", 1 + operands.index(name)]
        return ["in", place[each[1]]] if each[0] == "in" else list(each)

    code = [[op, [argument(each) for each in given], kind, dict(more)] for op, given, kind, more in at["code"]]
    body = {"first": first, "views": views, "code": code, "result": argument(at["results"][0])}
    fused = Step("Conv", (*conv.inputs, *operands), step.outputs, {**conv.attributes, "epilogue": body})
    return Pair(conv, step, fused, numbers)


def _number(value: float, numbers: dict[str, Any]) -> str:
    """The constant that holds it: libraries do not take numbers in a plan that is kept, but from memory."""
    import numpy as np

    name = f"epilogue:{float(value)!r}"
    numbers[name] = np.array([value], np.float32)
    return name
