"""Sums of integers to the last digit: ONNX Runtime 1.31 adds them in float64, along some axes of some sizes.

From 2**53 on digits are lost there, and at the ends of int64 a sum stops where the frameworks go on at the other end:
sums of hashes, of squares and of times in nanoseconds. The halves of each number are summed apart, which float64 holds,
and put together by int64 arithmetic, which wraps around. Those of int32 are cut off from sums of int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends._small_numbers import SmallNumbers
from hybrid_infer.backends._source import rewrite, subgraphs


def split_in_halves(model: Any, kinds: Mapping[str, int]) -> None:
    """Rewrite `model` (an onnx.ModelProto), and the graphs inside, in place. ``kinds``: element types, by name."""
    from onnx import TensorProto

    graphs = [model.graph, *subgraphs(model.graph.node)]
    small = SmallNumbers(graphs, kinds)
    forms = {TensorProto.INT64: _halves, TensorProto.INT32: _widened}

    def of_one(node: Any) -> list[Any]:
        kind = kinds.get(node.input[0]) if node.op_type == "ReduceSum" and not node.domain else None
        form = forms.get(kind)
        return [node] if form is None or small.holds(node.input[0]) else form(node)

    for graph in graphs:
        rewrite(graph, of_one)


def _widened(node: Any) -> list[Any]:
    from onnx import TensorProto, helper

    given, result = node.input[0], node.output[0]
    sum_of = type(node).FromString(node.SerializeToString())
    sum_of.input[0], sum_of.output[0] = f"{result}::wide", f"{result}::sum"
    return [
        helper.make_node("Cast", [given], [f"{result}::wide"], to=TensorProto.INT64),
        *_halves(sum_of, 1 << 16),  # of 4 million numbers, sums of the whole are past 2**53
        helper.make_node("Cast", [f"{result}::sum"], [result], to=TensorProto.INT32),
    ]


def _halves(node: Any, half: int = 1 << 32) -> list[Any]:
    from onnx import TensorProto, helper

    given, result = node.input[0], node.output[0]
    base, low, rest, high = (f"{result}::{part}" for part in ("base", "low", "rest", "high"))
    made = [
        helper.make_node("Constant", [], [base], value=helper.make_tensor(base, TensorProto.INT64, [], [half])),
        helper.make_node("Mod", [given, base], [low]),
        helper.make_node("Sub", [given, low], [rest]),
        helper.make_node("Div", [rest, base], [high]),
    ]
    for part in (low, high):
        sum_of = type(node).FromString(node.SerializeToString())
        sum_of.name, sum_of.input[0], sum_of.output[0] = "", part, f"{part}::sum"
        made.append(sum_of)
    made.append(helper.make_node("Mul", [f"{high}::sum", base], [f"{result}::above"]))
    made.append(helper.make_node("Add", [f"{result}::above", f"{low}::sum"], [result]))
    return made
