"""Element types of results as the method has them, where the exporter hands on what it computes them from.

It computes `abs`, sums and others of half precision in float32 and rounds what later operators are given; results of
the graph it gives as they were before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_infer._types import TensorSpec
from hybrid_infer.frontends._scopes import inside

_KINDS = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}


def keep(graph: Any, specs: Sequence[TensorSpec]) -> None:
    """Convert results of an ``onnx.GraphProto`` that are of another type of fractions than `specs` say, in place."""
    from onnx import TensorProto, helper

    kinds = {name: getattr(TensorProto, kind) for name, kind in _KINDS.items()}
    for value, spec in zip(graph.output, specs, strict=False):  # what a method checks of values has no specification
        kind, given = kinds.get(spec.dtype), value.type.tensor_type
        if kind is None or given.elem_type == kind or given.elem_type not in kinds.values():
            continue
        source = f"{value.name}::computed"
        if not _renamed(graph, value.name, source):
            continue
        given.elem_type = kind
        graph.node.append(helper.make_node("Cast", [source], [value.name], to=kind))


def _renamed(graph: Any, name: str, new: str) -> bool:
    """Call what a node gives otherwise, wherever it is read; False where no node gives it."""
    if not any(name in node.output for node in graph.node):
        return False
    for body in (graph, *(inner for node in graph.node for inner in _all_inside(node))):
        for node in body.node:
            for names in (node.input, node.output):
                names[:] = [new if each == name else each for each in names]
    for inner in (inner for node in graph.node for inner in _all_inside(node)):
        for value in inner.output:
            value.name = new if value.name == name else value.name
    return True


def _all_inside(node: Any) -> list[Any]:
    found = []
    for inner in inside(node):
        found += [inner, *(deeper for each in inner.node for deeper in _all_inside(each))]
    return found
