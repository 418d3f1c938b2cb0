"""Weights that a graph only ever transposes are given to it transposed: once at a refit instead of at each run.

Exporters write ``x @ w.T`` as a product with a Transpose of the weight. TensorRT's parser may fold that into a weight
without a name, which no refit reaches.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hybrid_infer.backends._source import subgraphs
from hybrid_infer.backends.tensorrt._bypass import bypass


def turn(model: Any, weights: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Let the inputs of `model` called `weights` be transposed where it does nothing else with them.

    Returns by name how the axes of a tensor have to be permuted before it is given.
    """
    graph = model.graph
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    inside = {name for inner in subgraphs(graph.node) for node in inner.node for name in node.input}
    inside.update(value.name for inner in subgraphs(graph.node) for value in inner.output)
    kept = inside.union(value.name for value in graph.output)
    found: dict[str, tuple[int, ...]] = {}
    renamed: dict[str, str] = {}
    for name in weights:
        nodes = readers.get(name, [])
        orders = {_order(node) for node in nodes}
        if name in kept or len(orders) != 1 or None in orders or any(node.output[0] in kept for node in nodes):
            continue
        (order,) = orders
        assert order is not None
        found[name] = order
        renamed.update((node.output[0], name) for node in nodes)
    if not found:
        return found
    bypass(graph, renamed)
    for value in graph.input:
        if value.name in found:
            sizes = [type(size).FromString(size.SerializeToString()) for size in value.type.tensor_type.shape.dim]
            del value.type.tensor_type.shape.dim[:]
            value.type.tensor_type.shape.dim.extend(sizes[axis] for axis in found[value.name])
    described = [value for value in graph.value_info if value.name not in renamed]
    copies = [type(value).FromString(value.SerializeToString()) for value in described]
    del graph.value_info[:]
    graph.value_info.extend(copies)
    return found


def _order(node: Any) -> tuple[int, ...] | None:
    """How a node permutes axes; None where it does something else, or does not say."""
    if node.op_type != "Transpose" or node.domain:
        return None
    return next((tuple(each.ints) for each in node.attribute if each.name == "perm"), None)
