"""What a convolution takes up behind it, as cuDNN's frontend wants it described: an operation for each instruction.

All is computed in float32, and nothing of it stored but the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: By instruction, the operation of the frontend and what it calls its operands.
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
_UNARY = {
    "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Neg": "neg", "Abs": "abs", "Exp": "exp", "Erf": "erf", "Tanh": "tanh",
    "Sigmoid": "sigmoid", "Relu": "relu", "Swish": "swish",
}  # fmt: skip
_GELU = {"none": "gelu", "tanh": "gelu_approx_tanh"}


def describe(graph: Any, wide: Any, body: Mapping[str, Any], operands: Sequence[Any]) -> Any:
    """The result of an ``epilogue`` (see `_epilogue`), in the graph; `wide`: the type in which all is computed."""
    made: list[Any] = []

    def argument(each: Sequence[Any]) -> Any:
        return operands[each[1]] if each[0] == "in" else made[each[1]]

    for op, given, _, attributes in body["code"]:
        values = [argument(each) for each in given]
        if op == "Cast":  # to float32
            made.append(values[0])
        elif op in _BINARY:
            a, b = values
            made.append(getattr(graph, _BINARY[op])(a=a, b=b, compute_data_type=wide))
        else:
            name = _GELU[attributes.get("approximate", "none")] if op == "Gelu" else _UNARY[op]
            made.append(getattr(graph, name)(input=values[0], compute_data_type=wide))
    return argument(body["result"])
