"""A weight-free ONNX graph made ready for ONNX Runtime, once, at build: what a warm process loads as it is.

Nothing here runs at a warm start, so that the `onnx` package (0.16 s to import) stays out of it.
"""

from __future__ import annotations

import json
from typing import Any

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Graph
from hybrid_infer.backends import (
    _empty_norms,
    _empty_products,
    _empty_recurrences,
    _exact_integers,
    _exact_scales,
    _exact_spectra,
    _lossy_casts,
    _nonfinite,
)
from hybrid_infer.backends._empty_means import mark
from hybrid_infer.backends._exact_sums import split_in_halves
from hybrid_infer.backends._faults import avoid_faults, spell_log_sigmoids
from hybrid_infer.backends._long_sums import split
from hybrid_infer.backends._negative_axes import count_from_the_front
from hybrid_infer.backends._plan_files import BOUND, COPIED, LIVE, MENDED, UNREAD
from hybrid_infer.backends._source import read, subgraphs

#: Where the stubs say that their data is. No such file exists: the session is given each of them from memory.
_LOCATION = "weights"

_MICROSOFT = "com.microsoft"


def prepare(graph: Graph, optimise: bool) -> dict[str, bytes]:
    """The files above of `graph`, in float32 where it says bfloat16; `MENDED` only where needed. Raises EngineError.

    With `optimise`, products with transposed weights are spelled so that no engine computes the transposed copies.
    """
    model = read(graph, "onnxruntime")
    weights = [name for name in graph.weights if name is not None]
    avoid_faults(model)
    count_from_the_front(model)
    split(model)
    mark(model)
    _empty_products.spare(model)
    _empty_recurrences.spare(model)
    _empty_norms.spare(model)
    _exact_spectra.widen(model)
    kinds = _nonfinite.types(model)
    split_in_halves(model, kinds)
    if _exact_integers.spell(model, kinds):
        kinds = _nonfinite.types(model)
    spell_log_sigmoids(model, kinds)
    _lossy_casts.part(model, kinds)
    _exact_scales.keep(model, kinds, weights)
    _nonfinite.open_clips(model, kinds)
    _nonfinite.keep(model, kinds)
    files = {}
    inside, suspects = _nonfinite.surface(model, kinds), _nonfinite.suspects(model, kinds)
    if inside or suspects:
        mended = type(model).FromString(model.SerializeToString())
        _nonfinite.mend(mended, suspects, inside, kinds)
        _drop_unread(mended, weights)
        files[MENDED] = mended.SerializeToString()
        _nonfinite.watch(model, suspects, inside, kinds)
    if optimise:
        _fuse_transposed_weights(model, set(weights))
    unread = _drop_unread(model, weights)
    live, copied = model.SerializeToString(), _moved(model, weights)
    _stub(model, [name for name in weights if name not in unread])
    lists = {UNREAD: json.dumps(unread).encode(), COPIED: json.dumps(copied).encode()}
    return {BOUND: model.SerializeToString(), LIVE: live, **lists, **files}


def _drop_unread(model: Any, weights: list[str]) -> list[str]:
    """Drop those of the inputs called `weights` that nothing reads; returns their names."""
    graph = model.graph
    read = {value.name for value in graph.output}
    read.update(name for node in graph.node for name in node.input)
    for inner in subgraphs(graph.node):
        read.update(value.name for value in inner.output)
        read.update(name for node in inner.node for name in node.input)
    unread = [name for name in weights if name not in read]
    for value in [value for value in graph.input if value.name in unread]:
        graph.input.remove(value)
    return unread


#: Operations by the inputs at which the engine reads a constant as it lies, or makes one of another name of it.
_IN_PLACE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("MatMul", "FusedMatMul"), (0, 1)),
    **dict.fromkeys(("Conv", "ConvTranspose", "LayerNormalization", "InstanceNormalization"), (1, 2)),
    "Gemm": (0, 1, 2),
    "BatchNormalization": (1, 2, 3, 4),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 5, 6, 7)),
    **dict.fromkeys(("Gather", "Transpose", "Reshape", "Cast", "Slice", "Squeeze", "Unsqueeze", "Split"), (0,)),
}


def _moved(model: Any, weights: list[str]) -> list[str]:
    """The weights that the engine may write anew, with their axes in another order, under their own name.

    It moves a transposition behind an operation (``conv(x).permute(0, 2, 3, 1) + weight``) by turning the operation's
    other argument round. An array that is shared with the caller then takes the place of the one that was turned, as it
    was: wrong in silence, where its sizes are equal.
    """
    names = set(weights)
    found: set[str] = set()
    for nodes in (model.graph.node, *(inner.node for inner in subgraphs(model.graph.node))):
        for node in nodes:
            safe = _IN_PLACE.get(node.op_type, ()) if node.domain in ("", _MICROSOFT) else ()
            found.update(name for i, name in enumerate(node.input) if name in names and i not in safe)
    return [name for name in weights if name in found]


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
    for inner in subgraphs(graph.node):
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
        outside = model.graph.initializer.add()
        outside.name, outside.data_type = name, kind.elem_type
        outside.dims.extend(size.dim_value for size in kind.shape.dim)
        outside.data_location = TensorProto.EXTERNAL
        entry = outside.external_data.add()
        entry.key, entry.value = "location", _LOCATION
        model.graph.input.remove(value)
