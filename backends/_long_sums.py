"""Sums and means of very many numbers, in two stages: ONNX Runtime adds along an axis one number after the other.

In float32, with an error that grows with their number: the mean of 400,000 numbers around 1,000 errs by 0.3%, where the
frameworks, which add in a tree, are right to the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_infer.backends._source import rewrite

_REDUCTIONS = {"ReduceMean": 18, "ReduceSum": 13}  # and the opset from which on the axes are an input
_MANY = 1 << 16  # numbers, from which on a sum is split


def split(model: Any) -> None:
    """Rewrite the outer graph of `model` (an onnx.ModelProto) in place, where sizes tell how many numbers there are."""
    graph = model.graph
    if not any(node.op_type in _REDUCTIONS for node in graph.node):
        return
    from onnx import TensorProto, shape_inference

    opset = next((each.version for each in model.opset_import if not each.domain), 1)
    inferred = shape_inference.infer_shapes(model).graph
    # Sums of whole numbers do not err, and a mean of means would be rounded twice.
    floats = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    shapes = {
        value.name: [d.dim_value if d.HasField("dim_value") else None for d in value.type.tensor_type.shape.dim]
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
        if value.type.tensor_type.HasField("shape") and value.type.tensor_type.elem_type in floats
    }
    known = constants(graph)

    def form(node: Any) -> list[Any]:
        parts = []
        if node.op_type in _REDUCTIONS and not node.domain and node.input[0] in shapes:
            parts = _stages(node, shapes[node.input[0]], known, opset >= _REDUCTIONS[node.op_type])
        return parts or [node]

    rewrite(graph, form)


def constants(graph: Any) -> dict[str, Any]:
    """Small tensors of integers that are part of the graph, by name."""
    from onnx import TensorProto

    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return {name: each for name, each in found.items() if each.data_type == TensorProto.INT64 and len(each.dims) <= 1}


def axes_of(node: Any, rank: int, known: Mapping[str, Any]) -> list[int] | None:
    """The axes that a node of `_REDUCTIONS` sums along, in order; None where the graph does not tell."""
    from onnx import numpy_helper

    settings = {attribute.name: attribute for attribute in node.attribute}
    if len(node.input) > 1 and node.input[1]:
        if node.input[1] not in known:
            return None
        listed = [int(axis) for axis in numpy_helper.to_array(known[node.input[1]]).ravel()]
    else:
        listed = list(settings["axes"].ints) if "axes" in settings else []
    if not listed and "noop_with_empty_axes" in settings and settings["noop_with_empty_axes"].i:
        return []
    return sorted(axis % rank for axis in listed) if listed else list(range(rank))


def _stages(node: Any, shape: Sequence[int | None], known: Mapping[str, Any], as_input: bool) -> list[Any]:
    """The nodes in place of one that reduces axes side by side; none where it may stay as it is."""
    from onnx import helper

    settings = {attribute.name: attribute for attribute in node.attribute}
    axes = axes_of(node, len(shape), known)
    if not axes:
        return []
    first, last = axes[0], axes[-1]
    rest = list(shape[last + 1 :])
    sizes = [size for size in shape[first : last + 1] if size is not None]
    if len(sizes) < last + 1 - first or axes != list(range(first, last + 1)):
        return []
    if rest.count(None) > (None not in shape[:first]):  # one size can be left open, unless others may be 0
        return []
    count = math.prod(sizes)
    inner = _divisor(count)
    if count < _MANY or inner is None:
        return []
    name, (given, result) = node.op_type, (node.input[0], node.output[0])
    target = [0] * first + [count // inner, inner] + [-1 if size is None else size for size in rest]
    nodes = [_listed(f"{result}::shape", target)]
    nodes.append(helper.make_node("Reshape", [given, nodes[0].output[0]], [f"{result}::rows"]))
    keeps = "keepdims" not in settings or bool(settings["keepdims"].i)
    reduced = f"{result}::reduced" if keeps else result
    rows, parts = f"{result}::rows", f"{result}::parts"
    for source, found, axis in ((rows, parts, first + 1), (parts, reduced, first)):
        if as_input:
            nodes.append(_listed(f"{found}::axes", [axis]))
            nodes.append(helper.make_node(name, [source, f"{found}::axes"], [found], keepdims=0))
        else:
            nodes.append(helper.make_node(name, [source], [found], axes=[axis], keepdims=0))
    if keeps:
        nodes.append(_listed(f"{result}::kept", [0] * first + [1] * len(axes) + [-1 if n is None else n for n in rest]))
        nodes.append(helper.make_node("Reshape", [reduced, nodes[-1].output[0]], [result]))
    return nodes


def _divisor(count: int) -> int | None:
    """The largest divisor up to the square root, so that neither stage is long; None where one would be."""
    found = next((n for n in range(math.isqrt(count), 0, -1) if count % n == 0), 1)
    return found if count // found < _MANY else None


def _listed(name: str, values: Sequence[int]) -> Any:
    from onnx import TensorProto, helper

    tensor = helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
    return helper.make_node("Constant", [], [name], value=tensor)
