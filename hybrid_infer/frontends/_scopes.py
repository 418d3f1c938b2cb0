"""Names of values in ONNX graphs with others inside (bodies of If, Loop and Scan), whatever an exporter calls them.

ONNX asks for names of their own, and engines do without: paddle2onnx gives what a loop carries the name of what it
starts from. All that rewrites a graph afterwards goes by the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def distinct(graph: Any) -> int:
    """Rename values of the graphs inside an ``onnx.GraphProto`` that have a name in common with any other; how many.

    A result that is there twice becomes two: of a branch that gives one value as two results, ONNX Runtime leaves
    one of them unwritten, with what was in that memory before.

    >>> from onnx import TensorProto, helper
    >>> def value(name, kind): return helper.make_tensor_value_info(name, kind, [])
    >>> body = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "body", [value("i", TensorProto.INT64),
    ...     value("go", TensorProto.BOOL), value("x", TensorProto.FLOAT)], [value("go", TensorProto.BOOL),
    ...     value("y", TensorProto.FLOAT)])
    >>> graph = helper.make_graph([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], "graph",
    ...     [value("n", TensorProto.INT64), value("x", TensorProto.FLOAT)], [value("y", TensorProto.FLOAT)])
    >>> distinct(graph), [(list(node.input), list(node.output)) for node in graph.node[0].attribute[0].g.node]
    (2, [(['x_1'], ['y_1'])])
    """
    taken = {*_given(graph), *(name for node in graph.node for name in node.output)}
    return sum(_renamed(inner, {}, taken) for node in graph.node for inner in inside(node))


def _renamed(graph: Any, names: dict[str, str], taken: set[str]) -> int:
    """Rename in a graph, in which values of those around it go by other `names`."""
    count = 0

    def new(name: str) -> str:
        nonlocal count
        found, number = name, 0
        while found in taken:
            number += 1
            found = f"{name}_{number}"
        taken.add(found)
        names[name] = found
        count += found != name
        return found

    for name in dict.fromkeys(_given(graph)):
        new(name)
    for value in (*graph.input, *graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        value.name = names[value.name]
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        count += sum(_renamed(inner, dict(names), taken) for inner in inside(node))
        node.output[:] = [name and new(name) for name in node.output]
    for value in (*graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    given: set[str] = set()
    for value in graph.output:
        if value.name in given:
            node = graph.node.add(op_type="Identity", input=[value.name])
            value.name = new(value.name)
            node.output.append(value.name)
        given.add(value.name)
    return count


def _given(graph: Any) -> Iterator[str]:
    """Names of what a graph starts with."""
    yield from (value.name for values in (graph.input, graph.initializer) for value in values)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def graphs(graph: Any) -> Iterator[Any]:
    """A graph, and all that lie inside it at any depth."""
    yield graph
    for node in graph.node:
        for inner in inside(node):
            yield from graphs(inner)


def inside(node: Any) -> Iterator[Any]:
    """The graphs that a node has as attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
