"""Means of no numbers, which are NaN: ONNX Runtime gives 0, and ONNX leaves it open.

A batch, a mask or a slice may be empty at one call and not at another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends._long_sums import axes_of, constants
from hybrid_infer.backends._source import kinds_of, rewrite


def mark(model: Any) -> None:
    """Rewrite the outer graph of `model` (an onnx.ModelProto) in place, where sizes do not tell that there are any."""
    graph = model.graph
    if not any(node.op_type == "ReduceMean" for node in graph.node):
        return
    from onnx import TensorProto

    floats = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)

    given = kinds_of(model)
    known = constants(graph)

    def form(node: Any) -> list[Any]:
        kind = given.get(node.input[0]) if node.op_type == "ReduceMean" and not node.domain else None
        if kind is None or kind.elem_type not in floats or not _may_be_empty(node, kind, known):
            return [node]
        return _marked(node, kind.elem_type)

    rewrite(graph, form)


def _may_be_empty(node: Any, kind: Any, known: Mapping[str, Any]) -> bool:
    if not kind.HasField("shape"):
        return True
    sizes = [each.dim_value if each.HasField("dim_value") else 0 for each in kind.shape.dim]
    axes = axes_of(node, len(sizes), known)
    return any(sizes[axis] <= 0 for axis in (range(len(sizes)) if axes is None else axes))


def _marked(node: Any, element: int) -> list[Any]:
    """The node, and what gives NaN in place of its result where it was given nothing."""
    from onnx import TensorProto, helper

    result = node.output[0]
    plain, count, zero, none, nan = (f"{result}::{part}" for part in ("mean", "count", "zero", "none", "nan"))
    mean = type(node).FromString(node.SerializeToString())
    mean.output[0] = plain
    return [
        mean,
        helper.make_node("Size", [node.input[0]], [count]),
        helper.make_node("Constant", [], [zero], value=helper.make_tensor(zero, TensorProto.INT64, [], [0])),
        helper.make_node("Equal", [count, zero], [none]),
        helper.make_node("Constant", [], [nan], value=helper.make_tensor(nan, element, [], [float("nan")])),
        helper.make_node("Where", [none, nan, plain], [result]),
    ]
