"""Drop the inputs for weights that a graph does not read, so that they are neither bound nor watched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hybrid_infer._types import Graph


def graphs(graph: Any) -> Iterator[Any]:
    """A GraphProto and every graph nested in it (bodies of If, Loop, Scan)."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)
            for inner in attribute.graphs:
                yield from graphs(inner)


def prune(graph: Graph) -> Graph:
    """A graph without the inputs and initializers that nothing in it reads; their names become None.

    >>> from onnx import TensorProto, helper
    >>> value = helper.make_tensor_value_info
    >>> body = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g",
    ...     [value("w", TensorProto.FLOAT, [2]), value("x", TensorProto.FLOAT, [2])],
    ...     [value("y", TensorProto.FLOAT, [2])])
    >>> pruned = prune(Graph(helper.make_model(body).SerializeToString(), ("w",), ("x",), ("y",), (), ()))
    >>> pruned.weights, pruned.inputs
    ((None,), ('x',))
    """
    import onnx

    model = onnx.load_from_string(graph.model)
    read = {value.name for value in model.graph.output}
    for inner in graphs(model.graph):
        read.update(name for node in inner.node for name in node.input)
        read.update(value.name for value in inner.output)
    for values in (model.graph.input, model.graph.initializer):
        kept = [value for value in values if value.name in read]
        if len(kept) < len(values):
            del values[:]
            values.extend(kept)
    return replace(
        graph,
        model=model.SerializeToString(),
        weights=tuple(name if name in read else None for name in graph.weights),
        inputs=tuple(name if name in read else None for name in graph.inputs),
    )
