"""Sums of int64 to the last digit: ONNX Runtime 1.31 adds them in float64, along some axes of some sizes.

From 2**53 on digits are lost there, and at the ends of int64 a sum stops where the frameworks go on at the other end:
sums of hashes, of squares and of times in nanoseconds. The halves of each number are summed apart, which float64 holds,
and put together by int64 arithmetic, which wraps around.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends._source import replace_nodes, subgraphs

_HALF = 1 << 32
#: What passes on numbers that it is given, at its first input or at each; some of it leaves some out.
_PASS_ON = frozenset(
    {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "GatherElements", "GatherND",
     "Expand", "Tile", "Flatten", "Split"}
)  # fmt: skip
#: Sizes, and places in an array.
_SMALL = frozenset({"Shape", "Size", "ArgMax", "ArgMin", "NonZero"})


def split_in_halves(model: Any, kinds: Mapping[str, int]) -> None:
    """Rewrite `model` (an onnx.ModelProto), and the graphs inside, in place. ``kinds``: element types, by name."""
    from onnx import TensorProto

    graphs = [model.graph, *subgraphs(model.graph.node)]
    made = {name: node for graph in graphs for node in graph.node for name in node.output}
    for graph in graphs:
        nodes: list[Any] = []
        for node in graph.node:
            wide = node.op_type == "ReduceSum" and not node.domain and kinds.get(node.input[0]) == TensorProto.INT64
            nodes += _halves(node) if wide and not _short(node.input[0], made, kinds) else [node]
        if len(nodes) > len(graph.node):
            replace_nodes(graph, nodes)


def _short(name: str, made: Mapping[str, Any], kinds: Mapping[str, int]) -> bool:
    """Are they numbers that 32 bits hold, as far as the graph tells? Counts are sums of such."""
    from onnx import TensorProto

    narrow = (TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16,
              TensorProto.INT32)  # fmt: skip
    for _ in range(64):
        node = made.get(name)
        if node is None or node.domain:
            return False
        if node.op_type == "Cast":
            return kinds.get(node.input[0]) in narrow
        if node.op_type not in _PASS_ON:
            return node.op_type in _SMALL
        name = node.input[0]
    return False


def _halves(node: Any) -> list[Any]:
    from onnx import TensorProto, helper

    given, result = node.input[0], node.output[0]
    base, low, rest, high = (f"{result}::{part}" for part in ("base", "low", "rest", "high"))
    made = [
        helper.make_node("Constant", [], [base], value=helper.make_tensor(base, TensorProto.INT64, [], [_HALF])),
        helper.make_node("Mod", [given, base], [low]),
        helper.make_node("Sub", [given, low], [rest]),
        helper.make_node("Div", [rest, base], [high]),
    ]
    for half in (low, high):
        sum_of = type(node).FromString(node.SerializeToString())
        sum_of.name, sum_of.input[0], sum_of.output[0] = "", half, f"{half}::sum"
        made.append(sum_of)
    made.append(helper.make_node("Mul", [f"{high}::sum", base], [f"{result}::above"]))
    made.append(helper.make_node("Add", [f"{result}::above", f"{low}::sum"], [result]))
    return made
