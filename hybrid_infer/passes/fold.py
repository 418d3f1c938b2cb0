"""Compute, once, what depends on constants alone: the sizes and axes that Paddle's converter spells as arithmetic."""

from __future__ import annotations

import logging
from typing import Any

from hybrid_infer.passes._scopes import reads, replace_nodes

_log = logging.getLogger("hybrid_infer")

#: Operators that move values, or compute on them exactly, so that whoever computes them gets the same.
_EXACT = frozenset(
    {"Cast", "Concat", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Range", "Reshape", "Shape",
     "Size", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)  # fmt: skip

#: Element types of ``onnx.TensorProto`` that NumPy holds as they are: float32, float64, bool and integers.
_PLAIN = frozenset({1, 2, 3, 5, 6, 7, 9, 11})

#: Bytes that a result may have; a larger one only where it is no larger than what it was made from.
_SMALL = 1024


def fold(model: Any) -> int:
    """Replace nodes of the outer graph that read nothing but constants by initializers.

    Weights are inputs here, and stay. What would bloat the graph (an Expand to the size of an image) stays too.

    >>> from onnx import TensorProto, helper, numpy_helper
    >>> value, made = helper.make_tensor_value_info, helper.make_tensor
    >>> body = helper.make_graph([helper.make_node("Unsqueeze", ["n", "a"], ["s"]),
    ...     helper.make_node("Reshape", ["x", "s"], ["y"])], "g", [value("x", TensorProto.FLOAT, [2, 2])],
    ...     [value("y", TensorProto.FLOAT, [4])], [made("n", TensorProto.INT64, [], [4]),
    ...     made("a", TensorProto.INT64, [1], [0])])
    >>> model = helper.make_model(body)
    >>> fold(model), [node.op_type for node in model.graph.node], numpy_helper.to_array(model.graph.initializer[-1])
    (1, ['Reshape'], array([4]))
    """
    graph = model.graph
    # An initializer that is an input as well is a default, which the caller may replace.
    inputs = {value.name for value in graph.input}
    constants = {t.name: t for t in graph.initializer if t.name not in inputs and _readable(t)}
    results = {value.name for value in graph.output}
    kept, folded = [], {}
    for node in graph.node:
        tensor = _constant(node)
        if tensor is not None:
            kept.append(node)
            constants[node.output[0]] = tensor
        elif _foldable(node, constants, results) and (tensor := _computed(model, node, constants)) is not None:
            constants[node.output[0]] = folded[node.output[0]] = tensor
        else:
            kept.append(node)
    if folded:
        wanted = set().union(*map(reads, kept))
        graph.initializer.extend(tensor for name, tensor in folded.items() if name in wanted)
        replace_nodes(graph, kept)
    return len(folded)


def _readable(tensor: Any) -> bool:
    return tensor.data_type in _PLAIN and not tensor.external_data


def _constant(node: Any) -> Any:
    """The value of a Constant node that holds one as a tensor."""
    if node.op_type != "Constant" or node.domain or len(node.attribute) != 1 or not node.attribute[0].HasField("t"):
        return None
    tensor = node.attribute[0].t
    return tensor if _readable(tensor) else None


def _foldable(node: Any, constants: dict[str, Any], results: set[str]) -> bool:
    return (
        node.op_type in _EXACT
        and not node.domain
        and len(node.output) == 1
        and node.output[0] not in results
        and any(node.input)
        and all(name in constants for name in node.input if name)
    )


def _computed(model: Any, node: Any, constants: dict[str, Any]) -> Any:
    """The result of `node` as a tensor; None where it is too large, not exact, or not to be had."""
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    operands = {name: constants[name] for name in node.input if name}
    arrays = {name: numpy_helper.to_array(tensor) for name, tensor in operands.items()}
    if not _bounded(node, [arrays[name] for name in node.input if name]):
        return None
    inputs = [helper.make_tensor_value_info(name, t.data_type, t.dims) for name, t in operands.items()]
    result = helper.make_empty_tensor_value_info(node.output[0])
    opsets = {each.domain: each.version for each in model.opset_import}
    alone = ReferenceEvaluator(helper.make_graph([node], "fold", inputs, [result]), opsets=opsets)
    try:
        (found,) = alone.run(None, arrays)
    except Exception as fault:  # an index out of range, say: the engine reports it if the node is ever computed
        _log.debug("%s is left to the engine: %s", node.op_type, fault)
        return None
    if found.nbytes > max(_SMALL, *(array.nbytes for array in arrays.values())):
        return None
    if found.dtype.kind in "iu" and any(array.dtype.kind == "f" for array in arrays.values()):
        return None  # NaN and what is out of range become what the engine makes of them
    tensor = numpy_helper.from_array(found, node.output[0])
    return tensor if _readable(tensor) else None


def _bounded(node: Any, operands: list[Any]) -> bool:
    """Is the result small before it is made? It may be the size of a mask over a long sequence."""
    import numpy as np

    if node.op_type == "Range":  # of floats, rounding decides how long it is
        start, limit, delta = operands
        return bool(start.dtype.kind == "i" and delta != 0 and abs((limit - start) / delta) * 8 <= _SMALL)
    if node.op_type in ("ConstantOfShape", "Expand"):
        return bool(np.prod(np.maximum(operands[-1], 1), dtype=float) * 8 <= _SMALL)
    return True
