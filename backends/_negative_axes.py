"""Axes of reductions counted from the front: ONNX Runtime 1.31 gets those that are counted from the end wrong.

Of an array without elements a reduction along axis -1 keeps that axis with its size, whatever it was told. A batch, a
mask or a slice may be empty at one call and not at another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends._long_sums import constants
from hybrid_infer.backends._source import rewrite, subgraphs

_ALONG_ONE = ("ArgMax", "ArgMin")


def count_from_the_front(model: Any) -> None:
    """Rewrite `model` (an onnx.ModelProto), and the graphs inside, in place, where the number of axes is known."""
    graphs = [model.graph, *subgraphs(model.graph.node)]
    if not any(map(_reduces, (node for graph in graphs for node in graph.node))):
        return
    from onnx import shape_inference

    inferred = shape_inference.infer_shapes(model).graph
    ranks: dict[str, int | None] = {}
    for graph in (inferred, *subgraphs(inferred.node)):
        for value in (*graph.input, *graph.value_info, *graph.output):
            kind = value.type.tensor_type
            rank = len(kind.shape.dim) if kind.HasField("shape") else None
            # Graphs beside each other may use one name for two values.
            ranks[value.name] = rank if ranks.get(value.name, rank) == rank else None
    known = {name: each for graph in graphs for name, each in constants(graph).items()}
    for graph in graphs:
        if any(map(_reduces, graph.node)):
            _rewrite(graph, ranks, known)


def _reduces(node: Any) -> bool:
    return not node.domain and (node.op_type.startswith("Reduce") or node.op_type in _ALONG_ONE)


def _rewrite(graph: Any, ranks: Mapping[str, int | None], known: Mapping[str, Any]) -> None:
    def form(node: Any) -> list[Any]:
        rank = ranks.get(node.input[0]) if _reduces(node) else None
        return [node] if rank is None else [*_counted(node, rank, known), node]

    rewrite(graph, form)


def _counted(node: Any, rank: int, known: Mapping[str, Any]) -> list[Any]:
    """Rewrites a node in place; returns what has to stand before it."""
    from onnx import helper, numpy_helper

    for attribute in node.attribute:
        if attribute.name == "axis" and attribute.i < 0:
            attribute.i += rank
        if attribute.name == "axes":
            attribute.ints[:] = [axis % rank for axis in attribute.ints]
    if len(node.input) < 2 or node.input[1] not in known:
        return []
    axes = numpy_helper.to_array(known[node.input[1]])
    if not (axes < 0).any():
        return []
    node.input[1] = f"{node.output[0]}::axes"
    counted = numpy_helper.from_array(axes % rank, node.input[1])
    return [helper.make_node("Constant", [], [node.input[1]], value=counted)]
