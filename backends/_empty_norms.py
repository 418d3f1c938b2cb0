"""Instance norms over nothing, with which ONNX Runtime 1.31 ends the process: it reads the first of no numbers.

A GroupNorm is written as one, too. An argument without elements is memory all the same, what a graph computes is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends._source import rewrite_all


def spare(model: Any) -> None:
    """Rewrite `model` (an onnx.ModelProto) in place, graphs inside too, where sizes do not tell that there is any."""
    rewrite_all(model, _norm, _spared)


def _norm(node: Any) -> bool:
    return node.op_type == "InstanceNormalization" and not node.domain


def _spared(node: Any, kinds: Mapping[str, Any]) -> list[Any]:
    """The node in a branch that is taken where there are numbers; the other one hands on that there are none."""
    from onnx import TensorProto, helper

    given, result = node.input[0], node.output[0]
    kind = kinds.get(given)
    if kind is not None and kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim[2:]):
        return [node]
    element = TensorProto.FLOAT if kind is None else kind.elem_type or TensorProto.FLOAT
    count, nothing, none = (f"{result}::{part}" for part in ("count", "nothing", "none"))
    plain = type(node).FromString(node.SerializeToString())
    plain.output[0] = f"{result}::plain"
    handed_on = helper.make_node("Identity", [given], [f"{result}::of nothing"])
    branches = {
        branch: helper.make_graph(
            [made], f"{result}::{branch}", [], [helper.make_tensor_value_info(made.output[0], element, None)]
        )
        for branch, made in (("then_branch", handed_on), ("else_branch", plain))
    }
    return [
        helper.make_node("Size", [given], [count]),
        helper.make_node("Constant", [], [nothing], value=helper.make_tensor(nothing, TensorProto.INT64, [], [0])),
        helper.make_node("Equal", [count, nothing], [none]),
        helper.make_node("If", [none], [result], **branches),
    ]
