"""Numbers that are cast to a type of fewer digits, and from there to a smaller one of integers, keep the lost digits.

ONNX Runtime 1.31 leaves the cast between out: 2.9999 by way of float16 was 2 as an int8, not 3, and 2049 was 1, not 0.
It does so with casts of its own, too, around what it computes in float32 for float16. The largest of one number between
them ends that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hybrid_infer.backends._source import rewrite, subgraphs


def part(model: Any, kinds: Mapping[str, int]) -> None:
    """Rewrite `model` (an onnx.ModelProto), and the graphs inside, in place. ``kinds``: element types, by name."""
    from onnx import TensorProto, helper

    graphs = [model.graph, *subgraphs(model.graph.node)]
    casts = {node.output[0] for graph in graphs for node in graph.node if _target(node)}
    bytewise, short = (TensorProto.INT8, TensorProto.UINT8), (TensorProto.INT16, TensorProto.UINT16)
    smaller = {
        TensorProto.FLOAT16: bytewise, TensorProto.BFLOAT16: bytewise, TensorProto.FLOAT: (*bytewise, *short),
        TensorProto.DOUBLE: (*bytewise, *short, TensorProto.INT32, TensorProto.UINT32),
    }  # fmt: skip

    def form(node: Any) -> Iterator[Any]:
        given = node.input[0] if _target(node) else ""
        kind = kinds.get(given, 0)
        if _target(node) in smaller.get(kind, ()) and (given in casts or kind == TensorProto.FLOAT16):
            name = node.output[0]
            if kind == TensorProto.BFLOAT16:  # of which the engine compares none
                yield helper.make_node("Cast", [given], [f"{name}::wide"], to=TensorProto.FLOAT)
                given = f"{name}::wide"
            yield helper.make_node("Max", [given], [f"{name}::parted"])
            node.input[0] = f"{name}::parted"
        yield node

    for graph in graphs:
        rewrite(graph, form)


def _target(node: Any) -> int:
    """The type that a node casts to; 0 of other nodes."""
    return sum(each.i for each in node.attribute if each.name == "to") if node.op_type == "Cast" else 0
