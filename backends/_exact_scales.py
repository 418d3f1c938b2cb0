"""Products of matrices in float64 that are scaled by a constant (`x @ y * 0.1`) to the last digit.

ONNX Runtime 1.31 makes one operation of a product and its scale, which is a number of float32 there: 0.1 became
0.10000000149. A scale that it does not know to be a constant is left where it stands. It knows
what it can compute before the first call, too: the root of a constant, or of a size that does not vary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hybrid_infer.backends._source import rewrite, subgraphs

#: What the engine may move or leave out, so that a scale behind it stands beside the product.
_BETWEEN = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "Mul", "Div"})


def keep(model: Any, kinds: Mapping[str, int], weights: Collection[str] = ()) -> None:
    """Rewrite `model` (an onnx.ModelProto), and the graphs inside, in place.

    ``kinds``: element types, by name. ``weights``: those of its inputs that are bound as constants.
    """
    graphs = [model.graph, *subgraphs(model.graph.node)]
    scales, computed = _single_numbers(graphs), _computed_before(graphs, kinds, weights)
    for graph in graphs:
        near = _near_products(graph, kinds)

        def form(node: Any, near: Collection[str] = near) -> list[Any]:
            found = None
            if node.op_type in ("Mul", "Div") and not node.domain and {*node.input, *node.output}.intersection(near):
                several = (at for names in (scales, computed) for at, name in enumerate(node.input) if name in names)
                found = next(several, None)
            return [node] if found is None else _hidden(node, found)

        rewrite(graph, form)


def _computed_before(graphs: list[Any], kinds: Mapping[str, int], weights: Collection[str]) -> set[str]:
    """Results of float64, or of a type that cannot be told, that follow from constants and sizes alone.

    How many elements they have is not asked: to hide a scale changes no result.
    """
    from onnx import TensorProto

    known = {*weights, *(tensor.name for graph in graphs for tensor in graph.initializer)}
    found: set[str] = set()
    for graph in graphs:
        for node in graph.node:
            if node.op_type in ("Shape", "Size") or (known.issuperset(filter(None, node.input)) and not _holds(node)):
                known.update(node.output)
                if node.op_type != "Constant":
                    found.update(node.output)
    return {name for name in found if kinds.get(name, TensorProto.DOUBLE) == TensorProto.DOUBLE}


def _holds(node: Any) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _single_numbers(graphs: list[Any]) -> set[str]:
    """Constants of float64 with one element, and weights, whose values are bound as constants."""
    from onnx import TensorProto

    tensors = [tensor for graph in graphs for tensor in graph.initializer]
    found = {tensor.name for tensor in tensors if tensor.data_type == TensorProto.DOUBLE and set(tensor.dims) <= {1}}
    for value in graphs[0].input:
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.DOUBLE and all(size.dim_value == 1 for size in kind.shape.dim):
            found.add(value.name)
    for graph in graphs:
        for node in graph.node:
            for attribute in node.attribute if node.op_type == "Constant" and not node.domain else ():
                one = attribute.t.data_type == TensorProto.DOUBLE and set(attribute.t.dims) <= {1}
                if attribute.name == "value" and one:
                    found.add(node.output[0])
    return found


def _near_products(graph: Any, kinds: Mapping[str, int]) -> set[str]:
    """What the graph's products of float64 take and give, through what the engine may leave out."""
    from onnx import TensorProto

    products = [node for node in graph.node if node.op_type == "MatMul" and not node.domain]
    double = [node for node in products if TensorProto.DOUBLE in map(kinds.get, (*node.input, *node.output))]
    near = {name for node in double for name in (*node.input, *node.output)}
    if not near:
        return near
    between = [node for node in graph.node if node.op_type in _BETWEEN and not node.domain]
    for nodes, before, behind in ((between, "input", "output"), (between[::-1], "output", "input")):
        for node in nodes:
            if near.intersection(getattr(node, before)):
                near.update(getattr(node, behind))
    return near


def _hidden(node: Any, at: int) -> list[Any]:
    """`node` with a scale that is the same number for any size of what it scales, which the engine does not see."""
    from onnx import TensorProto, helper

    given, result = node.input[1 - at], node.output[0]
    size, some, scale = (f"{result}::{part}" for part in ("size", "some", "scale"))
    scaled = type(node).FromString(node.SerializeToString())
    scaled.input[at] = scale
    return [
        helper.make_node("Size", [given], [size]),
        helper.make_node("Cast", [size], [some], to=TensorProto.BOOL),
        helper.make_node("Where", [some, node.input[at], node.input[at]], [scale]),
        scaled,
    ]
