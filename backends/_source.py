"""A weight-free graph as every engine takes it: checked, stripped and free of element types that no engine computes in.

Runs at build alone, so that the `onnx` package (0.16 s to import) stays out of a warm start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Graph

#: Integer attributes that name an element type.
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "stash_type", "output_dtype", "output_datatype", "softmax_precision"})


def read(graph: Graph, engine: str, *, widen: bool = True) -> Any:
    """The onnx.ModelProto of `graph`, in float32 where it says bfloat16. Raises EngineError in the name of `engine`.

    Without `widen` it is left in bfloat16, for an engine that computes in that type.

    Its inputs are the used weights and inputs, its outputs those of the graph, in the graph's order.
    """
    try:
        import onnx
    except ImportError as error:
        raise EngineError(engine, f"the onnx package, needed to build, cannot be imported: {error}") from error
    try:
        model = onnx.ModelProto.FromString(graph.model)
    except Exception as error:
        raise EngineError(engine, f"the graph is not an ONNX model: {error}") from error
    _check_names(graph, model, engine)
    for scope in _scopes(model):
        _strip(scope)
        if widen:
            _widen(scope)
    del model.metadata_props[:]
    return model


def _check_names(graph: Graph, model: Any, engine: str) -> None:
    """Refuse names that do not fit; put inputs and outputs in the order of `graph`, and drop other outputs."""
    named = [name for name in (*graph.weights, *graph.inputs) if name is not None]
    declared = {value.name for value in model.graph.input}
    if len(set(named)) != len(named) or set(named) != declared:
        odd = sorted(declared.symmetric_difference(named)) or [name for name in named if named.count(name) > 1]
        raise EngineError(engine, f"the graph's inputs and the names given for them differ: {odd[:4]}")
    if missing := set(graph.outputs) - {value.name for value in model.graph.output}:
        raise EngineError(engine, f"the graph has no outputs named {sorted(missing)[:4]}")
    for value in [value for value in model.graph.output if value.name not in graph.outputs]:
        model.graph.output.remove(value)
    for values, order in ((model.graph.input, named), (model.graph.output, graph.outputs)):
        place = {name: i for i, name in enumerate(order)}
        values.sort(key=lambda value, place=place: place[value.name])


def subgraphs(nodes: Any) -> Iterator[Any]:
    """The graphs inside `nodes`, at any depth."""
    for node in nodes:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield inner
                yield from subgraphs(inner.node)


def kinds_of(model: Any) -> dict[str, Any]:
    """Element types and sizes, as ``TypeProto.Tensor``, of the values of `model` by name, as far as they can be told.
    """
    from onnx import helper, shape_inference

    inferred = shape_inference.infer_shapes(model).graph
    found: dict[str, Any] = {}
    for inner in (inferred, *subgraphs(inferred.node)):
        for value in (*inner.input, *inner.value_info, *inner.output):
            found.setdefault(value.name, value.type.tensor_type)
    for weight in inferred.initializer:
        kind = helper.make_tensor_type_proto(weight.data_type, list(weight.dims))
        found.setdefault(weight.name, kind.tensor_type)
    return found


def reads(node: Any) -> set[str]:
    """The names that a node reads, and those that graphs inside of it do."""
    names = set(node.input)
    for inner in subgraphs([node]):
        names.update(value.name for value in inner.output)
        names.update(name for each in inner.node for name in each.input)
    return names


def rewrite(graph: Any, form: Callable[[Any], Iterable[Any]]) -> None:
    """Put the nodes that `form` gives for a node in its place: as many or more, that one alone to leave it there."""
    nodes = [new for node in graph.node for new in form(node)]
    if len(nodes) > len(graph.node):
        replace_nodes(graph, nodes)


def rewrite_all(
    model: Any, concerned: Callable[[Any], bool], form: Callable[[Any, Mapping[str, Any]], Iterable[Any]]
) -> None:
    """The same of the nodes that are `concerned`, in graphs inside too; `form` is given the kinds of all values."""
    graphs = [graph for graph in (model.graph, *subgraphs(model.graph.node)) if any(map(concerned, graph.node))]
    if not graphs:
        return
    kinds = kinds_of(model)
    for graph in graphs:
        rewrite(graph, lambda node: form(node, kinds) if concerned(node) else [node])


def replace_nodes(graph: Any, nodes: Iterable[Any]) -> None:
    """Let a graph have these nodes, some of which it may have already, in this order."""
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _scopes(model: Any) -> Iterator[Any]:
    """Everything in `model` that holds nodes: its graph, graphs inside nodes, functions and graphs inside these."""
    yield model.graph
    yield from subgraphs(model.graph.node)
    for function in model.functions:
        yield function
        yield from subgraphs(function.node)


def _strip(scope: Any) -> None:
    """Drop what says where a node came from: nine tenths of an exported graph's bytes."""
    del scope.metadata_props[:]
    scope.ClearField("doc_string")
    for node in scope.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")


def _widen(scope: Any) -> None:
    """Turn every bfloat16 of `scope` into float32, for an engine that has no arithmetic in bfloat16.

    What is cast to bfloat16 and back is rounded on purpose, and stays so: a cast needs no arithmetic.
    """
    from onnx import TensorProto

    narrow = _round_shared(scope, *_rounded(scope))
    if hasattr(scope, "input") and hasattr(scope, "initializer"):
        for value in (*scope.input, *scope.output):
            _widen_type(value.type)
        for tensor in scope.initializer:
            _widen_tensor(tensor)
    for value in scope.value_info:
        if value.name not in narrow:
            _widen_type(value.type)
    for node in scope.node:
        if node.op_type == "Cast" and node.output[0] in narrow:
            continue
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            for tensor in attribute.tensors:
                _widen_tensor(tensor)
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT


def _rounded(scope: Any) -> tuple[set[str], set[str]]:
    """The values of `scope` that are cast to bfloat16 and from there to other types; those that others read as well."""
    from onnx import TensorProto

    def casts(node: Any, narrows: bool) -> bool:
        if node.op_type != "Cast" or node.domain:
            return False
        return any(each.name == "to" and (each.i == TensorProto.BFLOAT16) is narrows for each in node.attribute)

    cast = {node.output[0] for node in scope.node if casts(node, True)}
    if not cast:
        return cast, cast
    inside = [node for inner in subgraphs(scope.node) for node in inner.node]
    back = {node.input[0] for node in (*scope.node, *inside) if casts(node, False)}
    shared = {value if isinstance(value, str) else value.name for value in scope.output}
    shared.update(name for node in scope.node if not casts(node, False) for name in node.input)
    shared.update(name for node in inside for name in node.input)
    shared.update(value.name for inner in subgraphs(scope.node) for value in inner.output)
    return cast & back, cast & back & shared


def _round_shared(scope: Any, rounded: set[str], shared: set[str]) -> set[str]:
    """Have the values that are `shared` exist in float32, rounded; returns the names of what is in bfloat16 then."""
    from onnx import TensorProto, helper

    narrow = rounded - shared
    nodes: list[Any] = []
    for node in scope.node:
        nodes.append(node)
        if node.output[0] in shared:
            wide, node.output[0] = node.output[0], f"{node.output[0]}::bfloat16"
            narrow.add(node.output[0])
            nodes.append(helper.make_node("Cast", [node.output[0]], [wide], to=TensorProto.FLOAT))
    if shared:
        replace_nodes(scope, nodes)
    return narrow


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
