"""Fourier transforms in float64 where their length is no power of 2, or not known: ONNX Runtime 1.31 loses digits.

In float32 its errors grow with the length: 7e-5 of the largest value at a length of 400, 4e-3 at 16000, where the
frameworks have 3e-7. So a short first call agrees with eager, and a long one after it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends._long_sums import constants
from hybrid_infer.backends._source import kinds_of, rewrite, subgraphs

_NUMBERS = {"DFT": (0,), "STFT": (0, 2)}  # which of its inputs are what is transformed and what that is weighted by
_LENGTHS = {"DFT": 1, "STFT": 3}


def widen(model: Any) -> None:
    """Rewrite `model` (an onnx.ModelProto), and the graphs inside, in place."""
    from onnx import TensorProto

    graphs = [model.graph, *subgraphs(model.graph.node)]
    if not any(node.op_type in _NUMBERS for graph in graphs for node in graph.node):
        return
    kinds = kinds_of(model)
    for graph in graphs:
        known = constants(graph)

        def form(node: Any, known: Mapping[str, Any] = known) -> list[Any]:
            kind = kinds.get(node.input[0]) if node.op_type in _NUMBERS and not node.domain else None
            exact = kind is None or kind.elem_type != TensorProto.FLOAT or _of_a_power_of_two(node, kind, known)
            return [node] if exact else _widened(node)

        rewrite(graph, form)


def _of_a_power_of_two(node: Any, kind: Any, known: Mapping[str, Any]) -> bool:
    length = _number(node, _LENGTHS[node.op_type], known)
    if length is None and node.op_type == "DFT" and not any(node.input[1:2]) and kind.HasField("shape"):
        axis = next((each.i for each in node.attribute if each.name == "axis"), _number(node, 2, known))
        if axis is not None and -len(kind.shape.dim) <= axis < len(kind.shape.dim):
            length = kind.shape.dim[axis].dim_value
    return length is not None and length > 0 and length & (length - 1) == 0


def _number(node: Any, place: int, known: Mapping[str, Any]) -> int | None:
    from onnx import numpy_helper

    name = node.input[place] if len(node.input) > place else ""
    return int(numpy_helper.to_array(known[name]).item()) if name in known else None


def _widened(node: Any) -> list[Any]:
    from onnx import TensorProto, helper

    result = node.output[0]
    wide = type(node).FromString(node.SerializeToString())
    wide.output[0] = f"{result}::wide"
    made = []
    for place in _NUMBERS[node.op_type]:
        if len(node.input) > place and node.input[place]:
            wide.input[place] = f"{result}::wide {place}"
            made.append(helper.make_node("Cast", [node.input[place]], [wide.input[place]], to=TensorProto.DOUBLE))
    return [*made, wide, helper.make_node("Cast", [wide.output[0]], [result], to=TensorProto.FLOAT)]
