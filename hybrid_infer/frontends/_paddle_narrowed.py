"""Float64 that the converter computes with in float32, which no operator of the program asks for: refused.

It does so with what has no form of double precision in its eyes (erf, pools, products along an axis), in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_division import left_out
from hybrid_infer.frontends._paddle_purity import operators
from hybrid_infer.frontends._scopes import graphs

_REMEDY = "Cast to float32 in the method, if seven digits are enough"


def casts(program: Any) -> int:
    """How often a program makes float32 of float64 itself."""
    found = 0
    for op in operators(program.global_block()):
        if op.name().startswith("pd_op.cast") and op.operand_source(0).dtype.name == "FLOAT64":
            found += op.result(0).dtype.name in ("FLOAT32", "FLOAT16", "BFLOAT16")
    return found


def refuse(model_bytes: bytes, allowed: int) -> None:
    """Raise TraceError where a converted model makes float32 of float64 more often than `allowed`."""
    import onnx

    if b"Cast" not in model_bytes:
        return
    model = onnx.load_from_string(model_bytes)
    doubles = {value.name for value in model.graph.input if _kind(value) == onnx.TensorProto.DOUBLE}
    doubles |= {value.name for value in model.graph.initializer if value.data_type == onnx.TensorProto.DOUBLE}
    wide = any(_target(node) == onnx.TensorProto.DOUBLE for node in _nodes(model.graph))
    if not doubles and not wide:
        return
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False).graph
    doubles |= {value.name for value in inferred.value_info if _kind(value) == onnx.TensorProto.DOUBLE}
    mended = set().union(*(left_out(graph.node) for graph in graphs(model.graph)))
    narrow = [
        node.output[0]
        for node in _nodes(model.graph)
        if _target(node) == onnx.TensorProto.FLOAT and node.input[0] in doubles and node.output[0] not in mended
    ]
    if len(narrow) > allowed:
        readers = [node.op_type for node in _nodes(model.graph) if not set(narrow).isdisjoint(node.input)]
        names = ", ".join(dict.fromkeys(name for name in readers if name != "Cast")) or "a cast"
        raise TraceError(f"paddle2onnx computes with float64 in float32: {names}", _REMEDY)


def _kind(value: Any) -> int:
    return int(value.type.tensor_type.elem_type)


def _target(node: Any) -> int:
    return next((int(each.i) for each in node.attribute if each.name == "to"), 0) if node.op_type == "Cast" else 0


def _nodes(graph: Any) -> Iterator[Any]:
    for each in graphs(graph):
        yield from each.node
