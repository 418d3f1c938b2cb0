"""Small ONNX graphs for the tests of the engines, in the form in which a frontend hands them over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper

from hybrid_infer._types import Graph, TensorSpec

Spec = tuple[str, tuple[int | str | None, ...]]

_ELEMENT = {
    "bool": TensorProto.BOOL,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
}

node = helper.make_node


def value(name: str, spec: Spec) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _ELEMENT[spec[0]], list(spec[1]))


def graph(
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, Spec],
    inputs: Mapping[str, Spec],
    outputs: Mapping[str, Spec],
    *,
    unused_weights: int = 0,
    unused_inputs: int = 0,
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 20,
) -> Graph:
    """A `Graph`; names map to (dtype, shape), where a size may be a name. Unused ones are put in front."""
    taken = {**weights, **inputs}
    body = helper.make_graph(
        list(nodes),
        "test",
        [value(name, spec) for name, spec in taken.items()],
        [value(name, spec) for name, spec in outputs.items()],
        list(initializers),
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    onnx.checker.check_model(model)
    spare = TensorSpec("float32", (1,))
    return Graph(
        model=model.SerializeToString(),
        weights=(None,) * unused_weights + tuple(weights),
        inputs=(None,) * unused_inputs + tuple(inputs),
        outputs=tuple(outputs),
        input_specs=(spare,) * unused_inputs + tuple(map(tensor_spec, inputs.values())),
        output_specs=tuple(map(tensor_spec, outputs.values())),
    )


def tensor_spec(spec: Spec) -> TensorSpec:
    return TensorSpec(spec[0], tuple(size if isinstance(size, int) else None for size in spec[1]))


def linear(features: int = 4, rows: Any = "n") -> Graph:
    """``y = x @ w.T + b``, as torch's exporter writes it."""
    return graph(
        [
            node("Transpose", ["w"], ["t"], perm=[1, 0]),
            node("MatMul", ["x", "t"], ["p"]),
            node("Add", ["p", "b"], ["y"]),
        ],
        {"w": ("float32", (features, features)), "b": ("float32", (features,))},
        {"x": ("float32", (rows, features))},
        {"y": ("float32", (rows, features))},
    )
