"""Drop what no result depends on, so that weights that are not read are neither bound nor watched."""

from __future__ import annotations

from typing import Any

from hybrid_infer.passes._scopes import reads, replace_nodes


def prune(model: Any) -> int:
    """Drop the nodes, inputs and initializers of `model` (an onnx.ModelProto) that its outputs do not need.

    >>> from onnx import TensorProto, helper
    >>> value = helper.make_tensor_value_info
    >>> body = helper.make_graph([helper.make_node("Neg", ["w"], ["dead"]), helper.make_node("Neg", ["x"], ["y"])],
    ...     "g", [value("w", TensorProto.FLOAT, [2]), value("x", TensorProto.FLOAT, [2])],
    ...     [value("y", TensorProto.FLOAT, [2])])
    >>> model = helper.make_model(body)
    >>> prune(model), [each.name for each in model.graph.input], [node.op_type for node in model.graph.node]
    (2, ['x'], ['Neg'])
    """
    graph = model.graph
    read = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if read.isdisjoint(node.output):
            continue
        kept.append(node)
        read.update(reads(node))
    kept.reverse()
    dropped = len(graph.node) - len(kept)
    if dropped:
        replace_nodes(graph, kept)
    for values in (graph.input, graph.initializer, graph.sparse_initializer):
        alive = [value for value in values if _name(value) in read]
        dropped += len(values) - len(alive)
        if len(alive) < len(values):
            del values[:]
            values.extend(alive)
    if dropped:
        read.update(name for node in kept for name in node.output)
        described = [value for value in graph.value_info if value.name in read]
        del graph.value_info[:]
        graph.value_info.extend(described)
    return dropped


def _name(value: Any) -> str:
    """Of an input or an initializer; a sparse one is called by its values."""
    found: str = value.values.name if hasattr(value, "indices") else value.name
    return found
