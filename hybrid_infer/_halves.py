"""In which of the half-precision types a graph computes each of its results: that may end in float32 all the same.

Logits of a model in bfloat16 are often returned as ``logits.float()``; what they agree to is what bfloat16 can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hybrid_infer._verify import Disagreement

_TYPES = ("float32", "float16", "bfloat16")  # by how little they tell


def compare(
    compared: Callable[..., float], precision: str, model: Callable[[], bytes], outputs: Sequence[int]
) -> float:
    """What a comparison finds in a ``precision``; where it fails, with that of the graph for each of its results.

    `outputs`: the number of the graph's output that each is. Raises what `compared` and `model` raise.
    """
    try:
        return compared(precision=precision)
    except Disagreement:
        types = computed_in(model())
        lower = [max(precision, types[number], key=_TYPES.index) for number in outputs]
        if all(each == precision for each in lower):
            raise
    return compared(precision=lower)


def computed_in(model: bytes) -> list[str]:
    """For each output of an ONNX graph, the type that tells least among those that it is computed in.

    >>> import onnx
    >>> from onnx import helper as h
    >>> x, y, z = (h.make_tensor_value_info(n, t, [2]) for n, t in (("x", 16), ("y", 1), ("z", 1)))
    >>> nodes = [h.make_node("Cast", ["x"], ["y"], to=1), h.make_node("Shape", ["w"], ["s"]),
    ...          h.make_node("Cast", ["s"], ["z"], to=1)]
    >>> w = h.make_tensor_value_info("w", 1, [2])
    >>> computed_in(h.make_model(h.make_graph(nodes, "g", [x, w], [y, z])).SerializeToString())
    ['bfloat16', 'float32']
    """
    import onnx

    graph = onnx.load_from_string(model).graph
    ranks = _ranks(graph, {})
    return [_TYPES[ranks.get(output.name, 0)] for output in graph.output]


def _ranks(graph: Any, outer: Mapping[str, int]) -> dict[str, int]:
    """Of each value in a graph, the place of its type in `_TYPES`; `outer`: of values around it."""
    found = dict(outer)
    found.update((each.name, _rank(each.type.tensor_type.elem_type)) for each in graph.input)
    found.update((each.name, _rank(each.data_type)) for each in graph.initializer)
    for node in graph.node:
        ranks = [found.get(name, 0) for name in node.input]
        ranks += [rank for attribute in node.attribute for rank in _of_attribute(attribute, found)]
        found.update(dict.fromkeys(node.output, max(ranks, default=0)))
    return found


def _of_attribute(attribute: Any, outer: Mapping[str, int]) -> Iterable[int]:
    if attribute.name in ("to", "dtype"):
        yield _rank(attribute.i)
    if attribute.HasField("t"):
        yield _rank(attribute.t.data_type)
    for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
        inner = _ranks(graph, outer)
        yield max((inner.get(output.name, 0) for output in graph.output), default=0)


def _rank(element_type: int) -> int:
    return {10: 1, 16: 2}.get(element_type, 0)  # FLOAT16 and BFLOAT16 of onnx.TensorProto
