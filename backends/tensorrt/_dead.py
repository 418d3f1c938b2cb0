"""Nodes without an effect, which TensorRT drops by itself, and the weights that it is then not to be given."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hybrid_infer.backends._source import reads, replace_nodes


def drop(graph: Any, weights: Collection[str]) -> tuple[str, ...]:
    """Drop the nodes of `graph` that no result needs; those of `weights` that it then does not need, nor has any more.
    """
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed |= reads(node)
            kept.append(node)
    replace_nodes(graph, reversed(kept))
    gone = tuple(name for name in weights if name not in needed)
    for value in [value for value in graph.input if value.name in gone]:
        graph.input.remove(value)
    return gone
