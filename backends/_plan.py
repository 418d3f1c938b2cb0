"""A weight-free ONNX graph made ready for ONNX Runtime, once, at build: what a warm process loads as it is.

Nothing here runs at a warm start, so that the `onnx` package (0.16 s to import) stays out of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Graph
from hybrid_infer.backends._faults import avoid_faults

#: The model with its weights as stubs of external initializers, to be bound when a session is made.
BOUND = "bound.onnx"
#: The model with its weights as inputs, in the order of the graph, to be fed at each run.
LIVE = "live.onnx"

#: Where the stubs say that their data is. No such file exists: the session is given each of them from memory.
_LOCATION = "weights"

#: Integer attributes that name an element type.
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "stash_type", "output_dtype", "output_datatype", "softmax_precision"})

_MICROSOFT = "com.microsoft"


def prepare(graph: Graph, optimise: bool) -> dict[str, bytes]:
    """`BOUND` and `LIVE` of `graph`, computing in float32 where it says bfloat16. Raises EngineError.

    With `optimise`, products with transposed weights are spelled so that no engine computes the transposed copies.
    """
    try:
        import onnx
    except ImportError as error:
        raise EngineError("onnxruntime", f"the onnx package, needed to build, cannot be imported: {error}") from error
    try:
        model = onnx.ModelProto.FromString(graph.model)
    except Exception as error:
        raise EngineError("onnxruntime", f"the graph is not an ONNX model: {error}") from error
    weights = [name for name in graph.weights if name is not None]
    _check_names(graph, model)
    for scope in _scopes(model):
        _strip(scope)
        _widen(scope)
    del model.metadata_props[:]
    avoid_faults(model)
    if optimise:
        _fuse_transposed_weights(model, set(weights))
    live = model.SerializeToString()
    _stub(model, weights)
    return {BOUND: model.SerializeToString(), LIVE: live}


def _check_names(graph: Graph, model: Any) -> None:
    declared = {value.name for value in model.graph.input}
    named = [name for name in (*graph.weights, *graph.inputs) if name is not None]
    if len(set(named)) != len(named) or set(named) != declared:
        odd = sorted(declared.symmetric_difference(named)) or [name for name in named if named.count(name) > 1]
        raise EngineError("onnxruntime", f"the graph's inputs and the names given for them differ: {odd[:4]}")
    if missing := set(graph.outputs) - {value.name for value in model.graph.output}:
        raise EngineError("onnxruntime", f"the graph has no outputs named {sorted(missing)[:4]}")


def _subgraphs(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield inner
                yield from _subgraphs(inner.node)


def _scopes(model: Any) -> Iterator[Any]:
    """Everything in `model` that holds nodes: its graph, graphs inside nodes, functions and graphs inside these."""
    yield model.graph
    yield from _subgraphs(model.graph.node)
    for function in model.functions:
        yield function
        yield from _subgraphs(function.node)


def _strip(scope: Any) -> None:
    """Drop what says where a node came from: nine tenths of an exported graph's bytes."""
    del scope.metadata_props[:]
    scope.ClearField("doc_string")
    for node in scope.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")


def _widen(scope: Any) -> None:
    """Turn every bfloat16 of `scope` into float32, for an engine that has no arithmetic in bfloat16."""
    from onnx import TensorProto

    if hasattr(scope, "input") and hasattr(scope, "initializer"):
        for value in (*scope.input, *scope.output, *scope.value_info):
            _widen_type(value.type)
        for tensor in scope.initializer:
            _widen_tensor(tensor)
    else:
        for value in scope.value_info:
            _widen_type(value.type)
    for node in scope.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            for tensor in attribute.tensors:
                _widen_tensor(tensor)
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT


def _widen_type(kind: Any) -> None:
    from onnx import TensorProto

    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        if getattr(kind, which).elem_type == TensorProto.BFLOAT16:
            getattr(kind, which).elem_type = TensorProto.FLOAT
    elif which in ("sequence_type", "optional_type"):
        _widen_type(getattr(kind, which).elem_type)


def _widen_tensor(tensor: Any) -> None:
    import numpy as np
    from onnx import TensorProto

    if tensor.data_type != TensorProto.BFLOAT16:
        return
    if tensor.HasField("raw_data"):
        bits = np.frombuffer(tensor.raw_data, "<u2")
    else:
        bits = np.array(tensor.int32_data, np.uint16)
    tensor.ClearField("int32_data")
    tensor.data_type = TensorProto.FLOAT
    # The upper half of a float32 is a bfloat16.
    tensor.raw_data = (bits.astype("<u4") << 16).tobytes()


def _fuse_transposed_weights(model: Any, weights: set[str]) -> None:
    """Give ``MatMul(x, Transpose(weight))`` as one node that reads the weight as it lies.

    A session that finds the weight constant would compute its transposed copy, then pack that: half as long again
    to create, and for that time twice the memory. Steady speed is the same.
    """
    from onnx import TensorProto, helper

    graph = model.graph
    float32 = {value.name for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    # Names used in an inner graph, or given to the caller, keep their node.
    kept = {value.name for value in graph.output}
    for inner in _subgraphs(graph.node):
        kept.update(value.name for value in inner.output)
        kept.update(name for node in inner.node for name in node.input)
    fused = []
    for node in graph.node:
        if node.op_type != "Transpose" or node.domain or node.input[0] not in weights & float32:
            continue
        turned = node.output[0]
        order = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), None)
        products = users.get(turned, [])
        if (
            order != [1, 0]
            or turned in kept
            or not all(
                product.op_type == "MatMul" and not product.domain and product.input[0] != turned
                for product in products
            )
        ):
            continue
        for product in products:
            product.op_type, product.domain = "FusedMatMul", _MICROSOFT
            product.input[1] = node.input[0]
            product.attribute.append(helper.make_attribute("transB", 1))
        fused.append(node)
    for node in fused:
        graph.node.remove(node)
    if fused and all(entry.domain != _MICROSOFT for entry in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))


def _stub(model: Any, weights: list[str]) -> None:
    """Turn the inputs called `weights` into initializers whose data lies elsewhere."""
    from onnx import TensorProto

    inputs = {value.name: value for value in model.graph.input}
    for name in weights:
        value = inputs[name]
        kind = value.type.tensor_type
        if not kind.HasField("shape") or any(not size.HasField("dim_value") for size in kind.shape.dim):
            raise EngineError("onnxruntime", f"the weight {name!r} has no fixed shape in the graph")
        stub = model.graph.initializer.add()
        stub.name, stub.data_type = name, kind.elem_type
        stub.dims.extend(size.dim_value for size in kind.shape.dim)
        stub.data_location = TensorProto.EXTERNAL
        entry = stub.external_data.add()
        entry.key, entry.value = "location", _LOCATION
        model.graph.input.remove(value)
