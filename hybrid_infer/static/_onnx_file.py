"""An ONNX file of any exporter as a static model: its weights taken out, its inputs as parameters."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from hybrid_infer._errors import StaticModelError
from hybrid_infer._types import Graph, TensorSpec
from hybrid_infer._version import Version, Weight
from hybrid_infer.frontends._scopes import distinct
from hybrid_infer.static._model import Method, Model, Parameter, Saved, Stored, operators

_POSITIONAL = 1  # inspect's number of a parameter that may be passed by position and by name

#: Inputs of operators that engines want as constants.
_CONSTANTS = {"Resize": (1, 2, 3), "Upsample": (1,), "Clip": (1, 2), "Pad": (1, 2), "QuantizeLinear": (1, 2),
              "DequantizeLinear": (1, 2), "Range": (0, 1, 2), "OneHot": (1, 2), "TopK": (1,)}  # fmt: skip


def read(path: str) -> Model:
    """Raises StaticModelError."""
    return model_of(_bytes(path), path)


def model_of(data: bytes, path: str, framework: str = "") -> Model:
    """The static model of a serialised ModelProto; `path` is where it lay, for data that it keeps outside."""
    import onnx

    try:
        model = onnx.ModelProto.FromString(data)
    except Exception as fault:
        raise StaticModelError(path, "it is not an ONNX model, or is truncated") from fault
    if not model.graph.output:
        raise StaticModelError(path, "it is not an ONNX model: it has no outputs")
    _bring_in(model, path)
    distinct(model.graph)
    if framework == "paddle":  # whose exporter writes a weight as an operator without inputs
        _constants_out(model.graph)
    tensors, kept = {}, []
    fixed = set(_fixed(model.graph))
    for tensor in model.graph.initializer:
        stored = None if tensor.name in fixed or not tensor.dims else _stored(tensor, path)
        if stored is None:
            kept.append(tensor)
        else:
            tensors[tensor.name] = stored
    inputs = [v for v in model.graph.input if v.name not in tensors and v.name not in {t.name for t in kept}]
    specs = [_spec(value, path) for value in inputs]
    outputs = [_spec(value, path, rank_known=False) for value in model.graph.output]
    weights = list(tensors)
    from onnx import helper

    heads = [
        helper.make_tensor_value_info(name, getattr(onnx.TensorProto, _NAMES[dtype]), list(array.shape))
        for name, (dtype, array) in tensors.items()
    ]
    inner = model.graph
    del inner.initializer[:], inner.input[:]
    inner.initializer.extend(kept)
    inner.input.extend([*heads, *inputs])
    data = model.SerializeToString()
    graph = Graph(
        b"", tuple(weights), tuple(v.name for v in inputs), tuple(v.name for v in model.graph.output), tuple(specs),
        tuple(outputs),
    )  # fmt: skip
    names = _parameters([value.name for value in inputs])
    leaves = [["t"]] * len(outputs)
    version = Version(
        method="forward",
        tree=["u", "builtins:tuple", [["t"]] * len(inputs)],
        tensors=tuple(specs),
        ints=(),
        ambient=(),
        weights=tuple(Weight(name, (), dtype, tuple(array.shape)) for name, (dtype, array) in tensors.items()),
        results=["t"] if len(outputs) == 1 else ["u", "builtins:tuple", leaves],
        sources=tuple(("y", i) for i in range(len(outputs))),
        example=tuple(tuple(n or 2 for n in spec.shape) for spec in specs),
        graph=graph,
    )
    saved = Saved(version, lambda: data, tuple(value.name for value in inputs), operators(model))
    method = Method("forward", tuple(Parameter(name, _POSITIONAL) for name in names), [saved])
    return Model(
        framework, {"forward": method}, tensors, {name: name for name in tensors}, path=path,
        untrainable="it holds no program that can be trained",
    )  # fmt: skip


_NAMES = {
    "bool": "BOOL", "uint8": "UINT8", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE",
    "complex64": "COMPLEX64", "complex128": "COMPLEX128",
}  # fmt: skip


def _dtype(number: int) -> str | None:
    import onnx

    return next((ours for ours, name in _NAMES.items() if getattr(onnx.TensorProto, name) == number), None)


def _spec(value: Any, path: str, *, rank_known: bool = True) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise StaticModelError(path, f"{value.name} is a {str(kind).removesuffix('_type')}, not a tensor")
    tensor = value.type.tensor_type
    dtype = _dtype(tensor.elem_type)
    if dtype is None:
        raise StaticModelError(path, f"{value.name} is of an element type that is not served ({tensor.elem_type})")
    if rank_known and not tensor.HasField("shape"):
        raise StaticModelError(path, f"the input {value.name} has no shape")
    sizes = [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in tensor.shape.dim]
    return TensorSpec(dtype, tuple(sizes))


def _parameters(names: list[str]) -> list[str]:
    """Names of inputs as names of parameters."""
    found: list[str] = []
    for i, name in enumerate(names):
        wanted = re.sub(r"\W", "_", name) or f"x{i}"
        wanted = f"x_{wanted}" if wanted[0].isdigit() else wanted
        found.append(wanted if wanted not in found else f"{wanted}_{i}")
    return found


def _fixed(graph: Any) -> Iterator[str]:
    """Names of initializers that stay in the graph."""
    from hybrid_infer.passes._scopes import graphs

    for inner in graphs(graph):
        for node in inner.node:
            for place in _CONSTANTS.get(node.op_type, ()):
                if place < len(node.input):
                    yield node.input[place]


def _constants_out(graph: Any) -> None:
    """Turn the constants of a graph into initializers."""
    nodes = []
    for node in graph.node:
        value = next((each.t for each in node.attribute if each.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            value.name = node.output[0]
            graph.initializer.append(value)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _stored(tensor: Any, path: str) -> Stored | None:
    """A floating-point initializer as a weight; None where it is none."""
    import numpy as np
    import onnx

    dtype = _dtype(tensor.data_type)
    if dtype is None or "float" not in dtype:
        return None
    try:
        if dtype == "bfloat16":
            bits = tensor.raw_data or np.array(tensor.int32_data, np.uint16).tobytes()
            return dtype, np.frombuffer(bits, "<u2").reshape(tuple(tensor.dims))
        return dtype, np.asarray(onnx.numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as fault:
        raise StaticModelError(path, f"the data of {tensor.name} does not have its shape") from fault


# Data in other files


def _bring_in(model: Any, path: str) -> None:
    """Read what a model keeps in files beside it. Raises StaticModelError for what leads elsewhere."""
    import onnx

    folder = os.path.dirname(os.path.abspath(path))
    for tensor in _tensors_of(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        named = {entry.key: entry.value for entry in tensor.external_data}
        tensor.raw_data = _external(folder, named, tensor.name, path)
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT


def _tensors_of(model: Any) -> Iterator[Any]:
    from hybrid_infer.passes._scopes import graphs

    scopes = [*graphs(model.graph), *(inner for function in model.functions for inner in graphs(function))]
    for scope in scopes:
        yield from getattr(scope, "initializer", ())
        for sparse in getattr(scope, "sparse_initializer", ()):
            yield sparse.values
            yield sparse.indices
        for node in scope.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors


def _external(folder: str, named: Mapping[str, str], name: str, path: str) -> bytes:
    location = named.get("location", "")
    parts = re.split(r"[\\/]", location)
    if not location or os.path.isabs(location) or ".." in parts or "" in parts or ":" in location or "\0" in location:
        reason = f"the data of {name} is said to lie at {location!r}, outside of the model's folder"
        raise StaticModelError(path, reason)
    place = os.path.join(folder, *parts)
    if os.path.realpath(place) != os.path.join(os.path.realpath(folder), *parts):
        raise StaticModelError(path, f"the data of {name} lies behind a link, {location!r}, that leads elsewhere")
    try:
        start, size = int(named.get("offset", 0)), int(named["length"]) if "length" in named else -1
    except ValueError as fault:
        raise StaticModelError(path, f"where the data of {name} lies in {location} is not told in numbers") from fault
    data = _bytes(place, start, size, owner=path)
    if start < 0 or (size >= 0 and len(data) != size):
        raise StaticModelError(path, f"{location} is truncated: it does not hold the data of {name}")
    return data


def _bytes(place: str, start: int = 0, size: int = -1, *, owner: str = "") -> bytes:
    try:
        with open(place, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StaticModelError(owner or place, f"{os.path.basename(place)} is no regular file")
            file.seek(max(start, 0))
            return file.read(size)
    except OSError as fault:
        reason = f"{os.path.basename(place)} cannot be read: {fault.strerror or fault}"
        raise StaticModelError(owner or place, reason) from fault
