"""What passes need to know of an ONNX graph and of the graphs nested in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def graphs(graph: Any) -> Iterator[Any]:
    """A GraphProto, or a FunctionProto, and every graph nested in it (bodies of If, Loop, Scan)."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)
            for inner in attribute.graphs:
                yield from graphs(inner)


def attribute(node: Any, name: str) -> Any:
    """The attribute of a node, None where it has none of that name."""
    return next((each for each in node.attribute if each.name == name), None)


def reads(node: Any) -> set[str]:
    """The names that a node reads, those that graphs inside it take from outside among them."""
    names = set(node.input)
    for each in node.attribute:
        for outer in (each.g, *each.graphs) if each.HasField("g") else each.graphs:
            for inner in graphs(outer):
                names.update(value.name for value in inner.output)
                names.update(name for node in inner.node for name in node.input)
    return names


def replace_nodes(graph: Any, nodes: list[Any]) -> None:
    """Let `graph` have these nodes, some of which it may have already, in this order."""
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def element_types(model: Any) -> dict[str, int]:
    """The element types (of ``onnx.TensorProto``) of the values of a model, as far as they can be told."""
    from onnx import shape_inference

    found: dict[str, int] = {}
    for graph in graphs(shape_inference.infer_shapes(model).graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            kind = value.type.tensor_type.elem_type
            if kind:
                found[value.name] = kind
        found.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    return found
