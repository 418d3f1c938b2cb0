"""Products in a lower precision, for an engine that has no kernels for it: operands rounded, sums in float32.

That is what processors' own bfloat16 and float16 instructions compute. Everything else (normalisations, softmax,
reductions, inputs, results) stays in float32. A graph of float16 tensors would say the same, but engines without such
kernels take liberties with it: ONNX Runtime 1.31 at its lowest level of optimisation gives the float32 result.
"""

from __future__ import annotations

from typing import Any

from hybrid_infer.passes._scopes import element_types, graphs, replace_nodes

#: Operators that are products, and which of their inputs are multiplied (None: all).
_PRODUCTS: dict[str, tuple[int, ...] | None] = {
    "MatMul": (0, 1), "Gemm": (0, 1), "Einsum": None, "Conv": (0, 1), "ConvTranspose": (0, 1),
    "LSTM": (0, 1, 2), "GRU": (0, 1, 2), "RNN": (0, 1, 2),
}  # fmt: skip


def precision(model: Any, precision: str) -> int:
    """Round the float32 operands of every product of `model` to `precision` ("float16", "bfloat16").

    A value beyond the range of float16 stays as it is, where float16 would make it an infinity.

    >>> from onnx import TensorProto, helper
    >>> value = helper.make_tensor_value_info
    >>> body = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
    ...     [value("w", TensorProto.FLOAT, [2, 2]), value("x", TensorProto.FLOAT, [2, 2])],
    ...     [value("y", TensorProto.FLOAT, [2, 2])])
    >>> model = helper.make_model(body)
    >>> precision(model, "bfloat16"), [node.op_type for node in model.graph.node]
    (1, ['Cast', 'Cast', 'Cast', 'Cast', 'MatMul'])
    """
    from onnx import TensorProto, inliner

    if model.functions:  # types inside a function depend on its caller
        model.CopyFrom(inliner.inline_local_functions(model))
    low = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[precision]
    types = element_types(model)
    taken = {name for graph in graphs(model.graph) for node in graph.node for name in (*node.input, *node.output)}
    count = 0
    for graph in graphs(model.graph):
        rounded: dict[str, str] = {}  # per graph: the sibling of a nested one does not see its values
        nodes: list[Any] = []
        for node in graph.node:
            places = _operands(node, types, TensorProto.FLOAT)
            for place in places:
                name = node.input[place]
                if name not in rounded:
                    rounded[name] = _fresh(f"{name}::{precision}", taken)
                    nodes.extend(_rounding(name, rounded[name], low, taken))
                node.input[place] = rounded[name]
            count += bool(places)
            nodes.append(node)
        if rounded:
            replace_nodes(graph, nodes)
    return count


def _operands(node: Any, types: dict[str, int], float32: int) -> list[int]:
    """The places of the inputs of `node` that are to be rounded; none if one of them is no float32."""
    if node.domain or node.op_type not in _PRODUCTS:
        return []
    wanted = _PRODUCTS[node.op_type]
    places = list(range(len(node.input))) if wanted is None else [i for i in wanted if i < len(node.input)]
    return places if all(types.get(node.input[i]) == float32 for i in places) else []


def _rounding(name: str, result: str, low: int, taken: set[str]) -> list[Any]:
    from onnx import TensorProto, helper

    narrow = _fresh(f"{result}::narrow", taken)
    if low == TensorProto.BFLOAT16:  # whose range is that of float32
        wide, guard = result, []
    else:
        wide, odd = _fresh(f"{result}::wide", taken), _fresh(f"{result}::odd", taken)
        guard = [helper.make_node("IsInf", [wide], [odd]), helper.make_node("Where", [odd, name, wide], [result])]
    return [
        helper.make_node("Cast", [name], [narrow], to=low),
        helper.make_node("Cast", [narrow], [wide], to=TensorProto.FLOAT),
        *guard,
    ]


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
