"""Patterns that ONNX Runtime 1.31 computes wrongly in silence, written so that it computes them rightly.

Each was seen to be wrong with the engine's optimisations on and right without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends._long_sums import constants
from hybrid_infer.backends._source import replace_nodes


def avoid_faults(model: Any) -> None:
    """Rewrite the outer graph of `model` (an onnx.ModelProto) in place."""
    _drop_identity_transposes(model.graph)
    _raise_vectors(model)
    _cut_to_nothing(model.graph)


def spell_log_sigmoids(model: Any, kinds: Mapping[str, int]) -> None:
    """Write the logarithm of a Sigmoid as what it is the negative of, in the outer graph of `model`, in place.

    The engine's Sigmoid has an absolute error, of 6e-8 in float32, and is 0 from -18 on there, in float64 further down.
    Its Softplus is right, and there is none in float64. ``kinds``: the element types of the values, by name.
    """
    from onnx import TensorProto, helper

    graph, floats = model.graph, (TensorProto.FLOAT, TensorProto.DOUBLE)
    read = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Sigmoid" and not node.domain}
    nodes = []
    for node in graph.node:
        given = read.get(node.input[0]) if node.op_type == "Log" and not node.domain else None
        if given is None or kinds.get(given) not in floats:
            nodes.append(node)
            continue
        result = node.output[0]
        turned, loss = f"{result}::turned", f"{result}::loss"
        nodes.append(helper.make_node("Neg", [given], [turned]))
        if kinds[given] == TensorProto.FLOAT:
            nodes.append(helper.make_node("Softplus", [turned], [loss]))
        else:
            one = helper.make_tensor(f"{result}::one", TensorProto.DOUBLE, [], [1.0])
            nodes.append(helper.make_node("Constant", [], [one.name], value=one))
            nodes.append(helper.make_node("Exp", [turned], [f"{result}::power"]))
            nodes.append(helper.make_node("Add", [f"{result}::power", one.name], [f"{result}::sum"]))
            nodes.append(helper.make_node("Log", [f"{result}::sum"], [loss]))
        nodes.append(helper.make_node("Neg", [loss], [result]))
    if len(nodes) > len(graph.node):
        replace_nodes(graph, nodes)


def _drop_identity_transposes(graph: Any) -> None:
    """GemmTransposeFusion takes any Transpose for one that swaps the axes (microsoft/onnxruntime 32228)."""
    for node in graph.node:
        if node.op_type == "Transpose" and not node.domain:
            order = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), None)
            if order is not None and order == sorted(order):
                node.op_type = "Identity"
                del node.attribute[:]


def _cut_to_nothing(graph: Any) -> None:
    """ExpandElimination drops an expansion to a size of 0: one to 1 and a cut take its place."""
    from onnx import TensorProto, helper, numpy_helper

    if not any(node.op_type == "Expand" for node in graph.node):
        return
    known = constants(graph)
    nodes: list[Any] = []
    for node in graph.node:
        expands = node.op_type == "Expand" and not node.domain and node.input[1] in known
        sizes = numpy_helper.to_array(known[node.input[1]]).ravel().tolist() if expands else []
        if 0 not in sizes:
            nodes.append(node)
            continue
        result, gone = node.output[0], [at - len(sizes) for at, size in enumerate(sizes) if size == 0]
        nothing = [0] * len(gone)
        wanted = {"sizes": [size or 1 for size in sizes], "start": nothing, "end": nothing, "axes": gone}
        for part, numbers in wanted.items():
            value = helper.make_tensor(f"{result}::{part}", TensorProto.INT64, [len(numbers)], numbers)
            nodes.append(helper.make_node("Constant", [], [value.name], value=value))
        nodes.append(helper.make_node("Expand", [node.input[0], f"{result}::sizes"], [f"{result}::wide"]))
        cut = [f"{result}::{part}" for part in ("wide", "start", "end", "axes")]
        nodes.append(helper.make_node("Slice", cut, [result]))
    if len(nodes) > len(graph.node):
        replace_nodes(graph, nodes)


def _raise_vectors(model: Any) -> None:
    """MatmulTransposeFusion computes ``a @ vector`` for ``Transpose(a) @ vector``; with a column it is right.

    Whatever the engine drops may stand between the two, such as a Reshape to the sizes that were there; so a column
    takes the place of every vector. Its rank comes from the types in the graph, completed by shape inference where they
    say nothing.
    """
    from onnx import TensorProto, helper, shape_inference

    graph = model.graph
    operators = {node.op_type for node in graph.node if not node.domain}
    if not operators >= {"Transpose", "MatMul"}:
        return
    inferred = shape_inference.infer_shapes(model).graph
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
        if value.type.tensor_type.HasField("shape")
    }
    ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    nodes, axis = [], ""
    for node in graph.node:
        product = node.op_type == "MatMul" and not node.domain
        if not product or ranks.get(node.input[1]) != 1 or ranks.get(node.input[0]) == 1:
            nodes.append(node)
            continue
        result = node.output[0]
        if not axis:
            axis = f"{result}::last_axis"
            graph.initializer.append(helper.make_tensor(axis, TensorProto.INT64, [1], [-1]))
        nodes.append(helper.make_node("Unsqueeze", [node.input[1], axis], [f"{result}::column"]))
        nodes.append(helper.make_node("MatMul", [node.input[0], f"{result}::column"], [f"{result}::product"]))
        nodes.append(helper.make_node("Squeeze", [f"{result}::product", axis], [result]))
    if axis:
        replace_nodes(graph, nodes)
