"""Nodes taken out of a graph, with what they were made from in the place of what they gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def bypass(graph: Any, renamed: Mapping[str, str]) -> None:
    """Drop the nodes whose first output is among `renamed`, and let the others read the value that it stands for."""
    nodes = []
    for node in graph.node:
        if node.output and node.output[0] in renamed:
            continue
        copy = type(node).FromString(node.SerializeToString())
        for i, name in enumerate(copy.input):
            copy.input[i] = renamed.get(name, name)
        nodes.append(copy)
    del graph.node[:]
    graph.node.extend(nodes)
