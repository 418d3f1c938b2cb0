"""The body of a fused step: elementwise instructions over the operands, as data.

An instruction is ``[op, arguments, dtype, attributes]``. An argument is ``["in", i]``, the i-th operand; ``["at", j]``,
the result of instruction j; ``["is", number, dtype]``, a constant; in a step that has rows ``["row"]``, the normalised
element, and ``["early", argument]``, what was computed in front of the row. Every operand is read in a shape that
broadcasts to the step's space.

Arithmetic in float16 and bfloat16 is done in float32, and rounded where a result is stored or where the graph says
Cast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_infer.backends.native import _numpy_elementwise as elementwise
from hybrid_infer.backends.native import _size
from hybrid_infer.backends.native._call import Call
from hybrid_infer.backends.native._plan import NUMPY, Plan, Step
from hybrid_infer.backends.native._size import Atom, Dim, divided

Argument = list[Any]
Instruction = list[Any]

#: What may stand in a body: operators of one element each, for which there is CUDA C.
FUSABLE = frozenset({
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    "BitwiseNot", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Max", "Min", "Sum", "Mean", "Where",
    "Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "Sqrt", "Exp", "Log", "Reciprocal", "Erf", "Sin", "Cos", "Tan",
    "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "IsNaN", "IsInf", "Relu", "Sigmoid",
    "Softplus", "Softsign", "Elu", "Selu", "Celu", "LeakyRelu", "HardSigmoid", "HardSwish", "ThresholdedRelu",
    "Mish", "PRelu", "Gelu", "Clip", "Cast", "Swish",
})  # fmt: skip

#: Cheap enough to be computed again for each element that a smaller operand is spread over.
CHEAP = frozenset({
    "Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal", "Neg", "Abs", "Cast", "Where", "Not", "And", "Or", "Relu",
    "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
})  # fmt: skip

_NARROW = ("float16", "bfloat16")


def inside(dtype: str) -> str:
    """The type in which a body computes values of `dtype`."""
    return "float32" if dtype in _NARROW else dtype


def instruction(plan: Plan, step: Step, arguments: Sequence[Argument]) -> Instruction:
    """The instruction of an elementwise ONNX step."""
    return [step.op, list(arguments), plan.values[step.outputs[0]].dtype, dict(step.attributes)]


def constant(plan: Plan, name: str) -> Argument | None:
    """A constant whose elements are all equal, as an argument."""
    array = plan.constants.get(name)
    if array is None or array.size == 0 or array.size > 1 << 16:
        return None
    first = array.reshape(-1)[0]
    if array.size > 1 and not bool((array == first).all()):
        return None
    return ["is", first.item(), plan.values[name].dtype]


def run(
    code: Sequence[Instruction], operands: Sequence[Any], row: Any = None, early: Sequence[Any] = ()
) -> Callable[[Argument], Any]:
    """Run a body; gives what finds the value of an argument, in the type in which the body computes."""
    made: list[Any] = []

    def argument(each: Argument) -> Any:
        kind = each[0]
        if kind == "in":
            return _wide(operands[each[1]])
        if kind == "at":
            return made[each[1]]
        if kind == "early":
            return early[each[1][1]] if each[1][0] == "at" else argument(each[1])
        return row if kind == "row" else np.asarray(each[1], NUMPY[inside(each[2])])

    for op, arguments, dtype, attributes in code:
        values = [argument(each) for each in arguments]
        found = np.asarray(elementwise.TABLE[op](Call(attributes), *values))
        if op == "Cast" and dtype in _NARROW:
            found = found.astype(np.float32)
        made.append(found if op == "Cast" else found.astype(NUMPY[inside(dtype)], copy=False))
    return argument


def _wide(array: Any) -> Any:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def spread(operand: Any, view: Sequence[Dim], symbols: Mapping[Atom, int]) -> Any:
    """An operand in the shape in which the body reads it."""
    return operand.reshape([_size.evaluate(size, symbols) for size in view])


def types(plan: Plan, names: Sequence[str]) -> list[list[Any]]:
    """Type and shape of the results of a fused step, as its attribute ``outputs``."""
    return [[plan.values[name].dtype, list(plan.values[name].shape or ())] for name in names]


def refine(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """A shape whose axes, merged, give both `a` and `b`; None where there is none. Axes of size 1 fall out."""
    left, right = [s for s in a if s != 1], [s for s in b if s != 1]
    found: list[Dim] = []
    while left and right:
        m, n = left[0], right[0]
        if m == n:
            found.append(m)
            left.pop(0)
            right.pop(0)
        elif (rest := divided(m, n)) is not None:
            found.append(n)
            right.pop(0)
            left[0] = rest
        elif (rest := divided(n, m)) is not None:
            found.append(m)
            left.pop(0)
            right[0] = rest
        else:
            return None
    return tuple(found) if not left and not right else None


def split_view(view: Sequence[Dim], shape: Sequence[Dim], fine: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """`view`, which broadcasts to `shape`, as it broadcasts to `fine`, a refinement of `shape`."""
    aligned = [*([1] * (len(shape) - len(view))), *view]
    parts: list[Dim] = []
    at = 0
    for size, seen in zip(shape, aligned, strict=True):
        total: Dim = 1
        while total != size:
            if at == len(fine):
                return None
            total = total * fine[at]
            parts.append(1 if seen == 1 else fine[at])
            at += 1
    return tuple(parts) if at == len(fine) else None
