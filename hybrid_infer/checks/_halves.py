"""In which of the lower types each result of a graph was computed: that may end in float32 all the same.

Logits of a model in bfloat16 are often returned as ``logits.float()``; what they agree to is what bfloat16 can tell. On
a GPU the frameworks round the operands of float32 convolutions, and of products where they are told to, to TF32. And
weights of float32 give results of float64, where those are multiplied with numbers of that type.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_infer._types import TF32
from hybrid_infer.checks._verify import Disagreement

NONE = TF32()

_log = logging.getLogger("hybrid_infer")

_TYPES = ("float32", "single", "tf32", "float16", "bfloat16")  # by how little they tell


def compare(
    compared: Callable[..., float], precision: str, model: Callable[[], bytes], outputs: Sequence[int],
    tf32: TF32 = NONE,
) -> float:  # fmt: skip
    """What a comparison finds in a ``precision``; where it fails, with that of the graph for each of its results.

    `outputs`: the number of the graph's output that each is; `tf32`: what the eager method may have computed so. Raises
    what `compared` raises.
    """
    try:
        return compared(precision=precision)
    except Disagreement as fault:
        try:
            types = computed_in(model(), tf32)
            lower = [max(precision, types[number], key=_TYPES.index) for number in outputs]
        except Exception:  # the store has lost it meanwhile, or onnx does not read it
            _log.debug("what a graph computes in is not known", exc_info=True)
            raise fault from None
        if all(each == precision for each in lower):
            raise
    return compared(precision=lower)


def computed_in(model: bytes, tf32: TF32 = NONE) -> list[str]:
    """For each output of an ONNX graph, the type that tells least among those that it was rounded to on the way.

    What is in half precision from the start, and is converted to a wider type, loses nothing by that.

    >>> import onnx
    >>> from onnx import helper as h
    >>> x, y, z = (h.make_tensor_value_info(n, t, [2]) for n, t in (("x", 16), ("y", 1), ("z", 1)))
    >>> nodes = [h.make_node("Exp", ["x"], ["e"]), h.make_node("Cast", ["e"], ["y"], to=1),
    ...          h.make_node("Cast", ["x"], ["z"], to=1)]
    >>> computed_in(h.make_model(h.make_graph(nodes, "g", [x], [y, z])).SerializeToString())
    ['bfloat16', 'float32']

    A result of float64 that float32 was computed for, from arguments or weights of that type, is one of "single".
    """
    import onnx

    proto = onnx.load_from_string(model)
    try:
        proto = onnx.shape_inference.infer_shapes(proto)
    except Exception:  # then what the exporter has noted has to do
        _log.debug("the types inside a graph are not known", exc_info=True)
    given = {each.type.tensor_type.elem_type for each in proto.graph.input}
    ranks, found = _ranks(proto.graph, tf32, {}, {}), []
    for output in proto.graph.output:
        rank, kind = ranks.get(output.name, 0), output.type.tensor_type.elem_type
        found.append(_TYPES[0 if rank == 1 and not (kind == _DOUBLE and _FLOAT in given) else rank])
    return found


#: Operations that give some of the numbers that they are given, as they are.
_MOVES = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Concat", "Expand",
     "Tile", "Gather", "GatherND", "GatherElements", "Where", "Pad", "ScatterND", "ScatterElements", "DepthToSpace",
     "SpaceToDepth", "Compress", "Neg", "Abs", "Relu", "Max", "Min", "MaxPool", "ReduceMax", "ReduceMin", "TopK",
     "Constant", "ConstantOfShape"}
)  # fmt: skip
_FLOAT, _DOUBLE = 1, 11
_LOWER = {_FLOAT: 1, 10: 3, 16: 4}  # FLOAT, FLOAT16 and BFLOAT16 of onnx.TensorProto, by their place in `_TYPES`
_FLOATS = frozenset({_DOUBLE, *_LOWER})
#: By operator, which arithmetic of the framework's it stands for.
_IN_TF32 = {
    **dict.fromkeys(("MatMul", "Gemm", "Einsum"), "products"),
    **dict.fromkeys(("Conv", "ConvTranspose"), "convolutions"),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "recurrent"),
}


def _ranks(
    graph: Any, tf32: TF32, outer: Mapping[str, int], outer_types: Mapping[str, int]
) -> dict[str, int]:
    """Of each value in a graph, the place in `_TYPES` of what it was rounded to; `outer`: of values around it."""
    found, types = dict(outer), dict(outer_types)
    for each in (*graph.input, *graph.value_info, *graph.output):
        types[each.name] = each.type.tensor_type.elem_type
    types.update((each.name, each.data_type) for each in graph.initializer)
    for node in graph.node:
        given = max((found.get(name, 0) for name in node.input), default=0)
        inner = (g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs))
        results = [(_ranks(g, tf32, found, types), g) for g in inner]
        own = [ranks.get(output.name, 0) for ranks, g in results for output in g.output]
        for name in node.output:
            kind = types.get(name, 0)
            if node.op_type == "Cast":
                types[name] = kind = next(a.i for a in node.attribute if a.name == "to")
            if kind and kind not in _FLOATS:
                continue  # of integers and booleans, rounding moves few, and the comparison says which
            rounds = node.op_type not in _MOVES and not results
            if node.op_type == "Cast" and types.get(node.input[0]) == kind:
                rounds = False
            rank = _LOWER.get(kind, 0) if rounds else 0
            if kind in (0, _FLOAT) and getattr(tf32, _IN_TF32.get(node.op_type, ""), False):
                rank = _TYPES.index("tf32")
            found[name] = max([given, *own, rank])
    return found
