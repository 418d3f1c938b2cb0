"""Weights that a lowered graph reads in the narrow type alone: a plan is refitted with them in that type."""

from __future__ import annotations

from typing import Any

from hybrid_infer.backends._precision import lower as lower
from hybrid_infer.backends.tensorrt._bypass import bypass


def declare(model: Any, names: frozenset[str], precision: str) -> None:
    """Let the inputs called `names`, which are only ever cast to `precision`, have that type, without the casts."""
    from onnx import TensorProto

    low = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[precision]
    graph = model.graph
    casts = (node for node in graph.node if node.op_type == "Cast" and node.input[0] in names)
    bypass(graph, {node.output[0]: node.input[0] for node in casts})
    for value in graph.input:
        if value.name in names:
            value.type.tensor_type.elem_type = low
