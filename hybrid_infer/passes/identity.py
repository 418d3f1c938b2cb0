"""Drop nodes that hand their input on as it is: a quarter of the nodes of a Paddle transformer."""

from __future__ import annotations

from typing import Any

from hybrid_infer.passes._scopes import attribute, element_types, graphs, replace_nodes


def identity(model: Any) -> int:
    """Let the users of Identity, of Cast to the type that a value has, and of Transpose to the order that it has,
    read the value itself. A node that names a result, or a value that a nested graph gives, stays.

    >>> from onnx import TensorProto, helper
    >>> value = helper.make_tensor_value_info
    >>> body = helper.make_graph([helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])],
    ...     "g", [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])])
    >>> model = helper.make_model(body)
    >>> identity(model), [(node.op_type, list(node.input)) for node in model.graph.node]
    (1, [('Neg', ['x'])])
    """
    types = element_types(model)
    given = {value.name for graph in graphs(model.graph) for value in graph.output}
    source: dict[str, str] = {}
    for graph in graphs(model.graph):
        kept = []
        for node in graph.node:
            if not _hands_on(node, types) or node.output[0] in given:
                kept.append(node)
                continue
            # Nodes stand in an order in which what they read was seen before.
            source[node.output[0]] = source.get(node.input[0], node.input[0])
        if len(kept) < len(graph.node):
            replace_nodes(graph, kept)
    for graph in graphs(model.graph):
        for node in graph.node:
            for i, name in enumerate(node.input):
                if name in source:
                    node.input[i] = source[name]
    return len(source)


def _hands_on(node: Any, types: dict[str, int]) -> bool:
    if node.domain or not node.input or not node.input[0]:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type == "Cast":
        return bool(types.get(node.input[0], 0) == attribute(node, "to").i)
    order = attribute(node, "perm") if node.op_type == "Transpose" else None
    return order is not None and list(order.ints) == sorted(order.ints)
