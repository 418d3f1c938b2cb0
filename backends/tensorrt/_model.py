"""The ONNX graph that TensorRT is given: in its types, at an opset that it reads, with weights as stubs.

A weight of floats is an initializer whose data lies elsewhere, to be refitted; one of integers or booleans stays an
input, which is given the live tensor's address at each run, as TensorRT refits none of these.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from hybrid_infer._errors import GraphRefused
from hybrid_infer._types import Graph
from hybrid_infer.backends._source import read, subgraphs
from hybrid_infer.backends.tensorrt import _batchnorm, _dead, _precision, _turn

NAME = "tensorrt"

#: What TensorRT 11 reads; every graph of ours lies well inside.
OPSETS = range(9, 26)
_BFLOAT16 = 22
#: Operators that mean something else from an opset after 17 on.
_CHANGED = {
    **dict.fromkeys(
        ("ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
         "ReduceLogSumExp", "ReduceSumSquare", "Split"), 18
    ),
    "GridSample": 20, "DFT": 20, "GroupNormalization": 21,
}  # fmt: skip

#: Loops over time, and which of their inputs says how long each sequence is.
_RECURRENT, _LENGTHS = frozenset({"LSTM", "GRU", "RNN"}), 4

#: Element types of tensors at the ends of a plan, and the names that ONNX has for them. Floats can be refitted.
_ONNX = {
    "bool": "BOOL", "uint8": "UINT8", "int8": "INT8", "int32": "INT32", "int64": "INT64",
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT",
}  # fmt: skip
DTYPES = frozenset(_ONNX)
_FLOATS = frozenset({"float16", "bfloat16", "float32"})
_BYTES = {"bool": 1, "uint8": 1, "int8": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8}

#: Where the stubs say that their data is. There is no such file: the parser is given each of them from memory.
_LOCATION = "weights"


class Stub(NamedTuple):
    """A weight that is refitted: its type and sizes in the plan, and how the axes of a live one are permuted for it."""

    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...] | None

    @property
    def nbytes(self) -> int:
        return bytes_of(self.dtype, self.shape)


class Model(NamedTuple):
    """``data``: the serialised ModelProto. ``stubs``: the weights that are refitted. ``fed``: those that are inputs.

    ``unread``: those that no result needs, and that it does not have.
    """

    data: bytes
    stubs: Mapping[str, Stub]
    fed: tuple[str, ...]
    unread: tuple[str, ...] = ()


def model(graph: Graph, precision: str, *, fed: Collection[str] = (), live: bool = False) -> Model:
    """What TensorRT parses for `graph`, computing float32 in `precision`.

    `fed` names weights that have to be inputs, whatever their type; if `live`, all are. Raises GraphRefused.
    """
    from onnx import TensorProto, inliner

    proto = read(graph, NAME, widen=False)
    _check(proto)
    if proto.functions:  # types inside a function depend on its caller
        proto = inliner.inline_local_functions(proto)
    _check_lengths(proto)
    _batchnorm.expand(proto)
    kinds = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    named = {getattr(TensorProto, onnx): name for name, onnx in _ONNX.items()}
    unread = _dead.drop(proto.graph, [name for name in graph.weights if name is not None])
    weights = [name for name in graph.weights if name is not None and name not in unread]
    stubs = [name for name in weights if not live and name not in fed and named[kinds[name]] in _FLOATS]
    orders = _turn.turn(proto, stubs)
    if precision != "float32":
        _precision.declare(proto, _precision.lower(proto, precision, stubs), precision)
        if precision == "bfloat16":
            _raise_opset(proto)
        kinds = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    found = {name: Stub(named[kinds[name]], _stub(proto, name), orders.get(name)) for name in stubs}
    return Model(proto.SerializeToString(), found, tuple(name for name in weights if name not in found), unread)


def _check(proto: Any) -> None:
    """Refuse what TensorRT has no type or no reader for, before it is asked."""
    from onnx import TensorProto

    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version not in OPSETS:
            raise GraphRefused(NAME, f"the graph has opset {entry.version}; TensorRT reads {OPSETS[0]} to {OPSETS[-1]}")
    known = {getattr(TensorProto, onnx) for onnx in _ONNX.values()}
    for value in (*proto.graph.input, *proto.graph.output):
        kind = value.type.tensor_type.elem_type
        if kind not in known:
            raise GraphRefused(NAME, f"has no element type {TensorProto.DataType.Name(kind).lower()} ({value.name})")


def _check_lengths(proto: Any) -> None:
    """Refuse lengths of sequences: what is documented of TensorRT's parser does not say whether it heeds them."""
    for graph in (proto.graph, *subgraphs(proto.graph.node)):
        for node in graph.node:
            if node.op_type in _RECURRENT and len(node.input) > _LENGTHS and node.input[_LENGTHS]:
                raise GraphRefused(NAME, f"{node.op_type} is told where each sequence ends ({node.input[_LENGTHS]})")


def _raise_opset(proto: Any) -> None:
    """To the first that defines convolutions and pooling for bfloat16, unless an operator changed on the way."""
    operators = {node.op_type for graph in (proto.graph, *subgraphs(proto.graph.node)) for node in graph.node}
    for entry in proto.opset_import:
        changed = (name for name in operators if entry.version < _CHANGED.get(name, 0))
        if entry.domain in ("", "ai.onnx") and 17 <= entry.version < _BFLOAT16 and not any(changed):
            entry.version = _BFLOAT16


def _stub(proto: Any, name: str) -> tuple[int, ...]:
    """Turn an input into an initializer whose data lies elsewhere; its sizes."""
    from onnx import TensorProto

    value = next(each for each in proto.graph.input if each.name == name)
    kind = value.type.tensor_type
    outside = TensorProto(name=name, data_type=kind.elem_type, data_location=TensorProto.EXTERNAL)
    for size in kind.shape.dim:
        if not size.HasField("dim_value"):
            raise GraphRefused(NAME, f"the weight {name!r} has no fixed shape in the graph")
        outside.dims.append(size.dim_value)
    entry = outside.external_data.add()
    entry.key, entry.value = "location", _LOCATION
    proto.graph.input.remove(value)
    proto.graph.initializer.append(outside)
    return tuple(outside.dims)


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor without gaps."""
    return _BYTES[dtype] * math.prod(shape)
