"""What ONNX Runtime 1.31 makes of NaNs and infinities, put right where the frameworks make something else of them.

Measured on x86-64 with AVX-512: every operator that the exporters of torch and Paddle write, alone and behind the
convolution or product that it is fused with, with NaNs and infinities of either sign in 1 to 12 places and in all.

* A NaN is lost, by its place among its neighbours, in ReduceMax, ReduceMin, MaxPool, GlobalMaxPool, ArgMax, ArgMin,
  TopK and in ScatterElements that keeps the larger or the smaller. Unique loses the numbers beside it.
* LSTM and GRU cut what goes into their gates off at a bound, which makes a number of a NaN; GridSample does so with an
  infinite place.
* MaxPool and GlobalMaxPool give the lowest float for a window of nothing but negative infinities.
* Clip with one bound turns the infinity on its other side into the largest float: see `open_clips`.
* Shrink and ThresholdedRelu give 0 for a NaN: see `keep`.

The exact forms of MaxPool and the reductions take twice the operator's time and break up what the engine fuses. So the
graph that serves computes one number more, `FLAG`: could anything have been lost? A sum over what an operator reads
tells, since it is NaN where one of the terms is. See `watch`. A call for which the number is not zero is computed once
more, by a graph in the exact forms, see `mend`; its own `FLAG` says that a NaN met an operator without such a form.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hybrid_infer._errors import EngineError
from hybrid_infer.backends._plan_files import FLAG
from hybrid_infer.backends._source import rewrite, subgraphs

#: Element types of ``onnx.TensorProto``: float32, bool, and all floats that engines are given.
_FLOAT, _BOOL, _FLOATS = 1, 9, frozenset({1, 10, 11})
_EXTREMES = frozenset({"ReduceMax", "ReduceMin"})
_POOLS = frozenset({"MaxPool", "GlobalMaxPool"})
_POINTWISE = frozenset({"Shrink", "ThresholdedRelu"})
#: Which of the inputs of other operators are looked at; none of these has an exact form.
_READ: Mapping[str, slice] = {
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK", "Unique"), slice(1)),
    **dict.fromkeys(("ScatterElements", "ScatterND"), slice(0, 3, 2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), slice(None)),
    "GridSample": slice(1, 2),
}
#: Those in which an infinity makes a NaN.
_CUT = frozenset({"LSTM", "GRU", "RNN", "GridSample"})

#: Operators whose results hold no NaN where some of their inputs hold none.
_TAME: Mapping[str, slice] = {
    **dict.fromkeys(
        ("Abs", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Neg", "Relu", "Reshape",
         "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze", *_EXTREMES),
        slice(1),
    ),
    **dict.fromkeys(("Concat", "Max", "Min"), slice(None)),
    "Where": slice(1, 3),
}  # fmt: skip


def types(model: Any) -> dict[str, int]:
    """The element types of the values of an onnx.ModelProto, by name, as far as they can be told."""
    from onnx import shape_inference

    found = {}
    inferred = shape_inference.infer_shapes(model).graph
    for graph in (inferred, *subgraphs(inferred.node)):
        for value in (*graph.input, *graph.value_info, *graph.output):
            found[value.name] = value.type.tensor_type.elem_type
        found.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    return found


def open_clips(model: Any, kinds: Mapping[str, int]) -> None:
    """Write each Clip of floats that has one bound as Max or Min, in place. ``kinds``: see `types`."""
    for graph in (model.graph, *subgraphs(model.graph.node)):
        for node in graph.node:
            if node.op_type == "Clip" and not node.domain and not node.attribute and _of_floats(node, kinds):
                low, high = [*node.input[1:], "", ""][:2]
                if bool(low) != bool(high):
                    node.op_type = "Max" if low else "Min"
                    node.input[:] = [node.input[0], low or high]


def keep(model: Any, kinds: Mapping[str, int]) -> None:
    """Give the results of single operators, and of all that has an exact form inside of loops and branches, exactly."""
    _mend(model.graph, lambda node: node.op_type in _POINTWISE and not node.domain, kinds)
    for graph in subgraphs(model.graph.node):
        _mend(graph, lambda node: _loses(node) and _has_exact_form(node) and _of_floats(node, kinds), kinds)


def surface(model: Any, kinds: Mapping[str, int]) -> list[str]:
    """Have loops and branches give one result more, in place: has an operator without an exact form met a NaN there?

    Returns the names, in the outer graph, of numbers that are not zero then. Raises EngineError for a node that holds a
    graph and takes no further result.
    """
    return list(_surfaced(model.graph, kinds, itertools.count()))


def _surfaced(graph: Any, kinds: Mapping[str, int], numbers: Iterator[int]) -> Iterator[str]:
    from onnx import TensorProto, helper

    made: list[Any] = []
    for node in graph.node:
        inner = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        found = [[*_surfaced(each, kinds, numbers), *_flagged(each, kinds, numbers)] for each in inner]
        if not any(found):
            continue
        if node.domain or node.op_type not in ("If", "Loop", "Scan"):
            raise EngineError("onnxruntime", f"would lose a NaN in silence inside of a {node.op_type}")
        for each, flags in zip(inner, found, strict=True):
            at = f"{FLAG}.inner.{next(numbers)}"
            each.node.append(helper.make_node("Sum", flags, [at]) if flags else _constant(at, _FLOAT, 0.0))
            each.output.append(helper.make_tensor_value_info(at, TensorProto.FLOAT, []))
        for attribute in node.attribute:
            if attribute.name in ("scan_output_axes", "scan_output_directions"):
                attribute.ints.append(0)
        at = f"{FLAG}.inner.{next(numbers)}"
        node.output.append(f"{at}.each")
        # One number for each turn of a loop.
        made.append(helper.make_node("ReduceSum", [f"{at}.each"], [at], keepdims=0))
        yield at
    graph.node.extend(made)


def _flagged(graph: Any, kinds: Mapping[str, int], numbers: Iterator[int]) -> Iterator[str]:
    from onnx import helper

    made: list[Any] = []
    for node in graph.node:
        if not _loses(node) or _has_exact_form(node) or not _of_floats(node, kinds):
            continue
        for read in _read(node, kinds):
            at = f"{FLAG}.inner.{next(numbers)}"
            made.append(helper.make_node("Cast", [read], [f"{at}.wide"], to=_FLOAT))
            if node.op_type in _CUT:
                made += _not_finite(f"{at}.wide", at)
            else:
                made.append(helper.make_node("ReduceSum", [f"{at}.wide"], [f"{at}.sum"], keepdims=0))
                made.append(helper.make_node("IsNaN", [f"{at}.sum"], [f"{at}.odd"]))
            made.append(helper.make_node("Cast", [f"{at}.odd"], [at], to=_FLOAT))
            yield at
    graph.node.extend(made)


def suspects(model: Any, kinds: Mapping[str, int]) -> list[str]:
    """The first results of those nodes of the outer graph that may lose something."""
    whole = _without_nan(model.graph, kinds)
    return [
        node.output[0]
        for node in model.graph.node
        if _loses(node)
        and node.op_type not in _POINTWISE
        and _of_floats(node, kinds)
        and (node.op_type in _CUT | _POOLS or not whole.issuperset(_read(node, kinds)))
    ]


def watch(model: Any, names: Iterable[str], inside: Sequence[str], kinds: Mapping[str, int]) -> None:
    """Add to the results of `model`, in place, the `FLAG` of the nodes whose first results are `names`.

    ``inside``: see `surface`.
    """
    from onnx import helper

    graph, wanted = model.graph, set(names)
    flags: list[str] = []
    made: list[Any] = []
    for node in graph.node:
        if node.output[0] not in wanted:
            continue
        for read in _read(node, kinds):
            at = f"{FLAG}.{len(flags)}"
            if kinds.get(read) != _FLOAT:
                made.append(helper.make_node("Cast", [read], [f"{at}.wide"], to=_FLOAT))
                read = f"{at}.wide"
            if node.op_type in _POOLS:
                # The one sum that takes the layout in which the engine keeps what is between convolutions and pools.
                made.append(helper.make_node("GlobalAveragePool", [read], [f"{at}.means"]))
                made.append(helper.make_node("ReduceSum", [f"{at}.means"], [f"{at}.sum"], keepdims=0))
                made.append(_constant(f"{at}.least", _FLOAT, float("-inf")))
                made.append(helper.make_node("Greater", [f"{at}.sum", f"{at}.least"], [f"{at}.sound"]))
                made.append(helper.make_node("Not", [f"{at}.sound"], [f"{at}.odd"]))
            elif node.op_type in _CUT:
                made += _not_finite(read, at)
            else:
                made.append(helper.make_node("ReduceSum", [read], [f"{at}.sum"], keepdims=0))
                made.append(helper.make_node("IsNaN", [f"{at}.sum"], [f"{at}.odd"]))
            made.append(helper.make_node("Cast", [f"{at}.odd"], [at], to=_FLOAT))
            flags.append(at)
    graph.node.extend(made)
    _give(graph, [*flags, *inside])


def mend(model: Any, names: Iterable[str], inside: Sequence[str], kinds: Mapping[str, int]) -> None:
    """Write the nodes whose first results are `names` in forms that lose nothing, in place, and add a `FLAG`.

    It is not zero where a node that has no such form meets a NaN, be it ``inside`` of a loop or branch: see `surface`.
    """
    from onnx import helper

    flags: list[str] = []
    made: list[Any] = []
    wanted = set(names)
    for node in model.graph.node:
        if node.output[0] in wanted and not _has_exact_form(node):
            for read in _read(node, kinds):
                at = f"{FLAG}.{len(flags)}"
                flags.append(at)
                if node.op_type in _CUT:
                    made.append(helper.make_node("Cast", [read], [f"{at}.wide"], to=_FLOAT))
                    made += _not_finite(f"{at}.wide", at)
                    made.append(helper.make_node("Cast", [f"{at}.odd"], [at], to=_FLOAT))
                    continue
                made.append(helper.make_node("IsNaN", [read], [f"{at}.each"]))
                made.append(helper.make_node("Cast", [f"{at}.each"], [f"{at}.ones"], to=_FLOAT))
                made.append(helper.make_node("ReduceSum", [f"{at}.ones"], [at], keepdims=0))
    _mend(model.graph, lambda node: node.output[0] in wanted and _has_exact_form(node), kinds)
    model.graph.node.extend(made)
    _give(model.graph, [*flags, *inside])


def _loses(node: Any) -> bool:
    if node.domain or node.op_type not in {*_POOLS, *_EXTREMES, *_READ, *_POINTWISE}:
        return False
    if node.op_type.startswith("Scatter"):
        return any(each.name == "reduction" and each.s in (b"max", b"min") for each in node.attribute)
    return True


def _has_exact_form(node: Any) -> bool:
    return node.op_type in _EXTREMES | _POINTWISE or (node.op_type in _POOLS and len(node.output) == 1)


def _read(node: Any, kinds: Mapping[str, int]) -> list[str]:
    """The names of the floats that are looked at for a node."""
    names = node.input[_READ.get(node.op_type, slice(1))]
    return [name for name in names if name and kinds.get(name, _FLOAT) in _FLOATS]


def _not_finite(read: str, at: str) -> Iterator[Any]:
    """Is any of the numbers `read` a NaN or an infinity? (Or are they so large that their sum is.)"""
    from onnx import helper

    yield helper.make_node("ReduceSum", [read], [f"{at}.sum"], keepdims=0)
    yield helper.make_node("Abs", [f"{at}.sum"], [f"{at}.size"])
    yield _constant(f"{at}.most", _FLOAT, float("inf"))
    yield helper.make_node("Less", [f"{at}.size", f"{at}.most"], [f"{at}.sound"])
    yield helper.make_node("Not", [f"{at}.sound"], [f"{at}.odd"])


def _of_floats(node: Any, kinds: Mapping[str, int]) -> bool:
    return kinds.get(node.input[0], _FLOAT) in _FLOATS  # if they are none, the engine refuses the graph


def _give(graph: Any, flags: list[str]) -> None:
    from onnx import TensorProto, helper

    graph.node.append(helper.make_node("Sum", flags, [FLAG]) if flags else _constant(FLAG, _FLOAT, 0.0))
    graph.output.append(helper.make_tensor_value_info(FLAG, TensorProto.FLOAT, []))


def _constant(name: str, kind: int, value: float) -> Any:
    from onnx import helper

    return helper.make_node("Constant", [], [name], value=helper.make_tensor(f"{name}.value", kind, [], [value]))


def _mend(graph: Any, wanted: Any, kinds: Mapping[str, int]) -> None:
    rewrite(graph, lambda node: _mended(node, kinds.get(node.input[0], _FLOAT)) if wanted(node) else [node])


def _mended(node: Any, kind: int) -> Iterator[Any]:
    from onnx import NodeProto, helper

    read, result = node.input[0], node.output[0]
    number = NodeProto.FromString(node.SerializeToString())
    number.output[0] = last = f"{result}::number"
    yield number
    if node.op_type in _POINTWISE:
        yield helper.make_node("IsNaN", [read], [f"{result}::odd"])
        yield helper.make_node("Where", [f"{result}::odd", read, last], [result])
        return
    yield _constant(f"{result}::half", _FLOAT, 0.5)

    def anywhere(condition: str) -> Iterator[Any]:
        """Does the condition hold for any of the numbers that go into each result?"""
        yield helper.make_node("Cast", [condition], [f"{condition}.ones"], to=_FLOAT)
        any_of = NodeProto.FromString(node.SerializeToString())
        any_of.name = ""  # which no two nodes may share
        any_of.op_type = node.op_type if node.op_type in _POOLS else "ReduceMax"
        any_of.input[0], any_of.output[0] = f"{condition}.ones", f"{condition}.most"
        yield any_of
        yield helper.make_node("Greater", [f"{condition}.most", f"{result}::half"], [f"{condition}.any"])

    if node.op_type in _POOLS:
        yield _constant(f"{result}::least", kind, float("-inf"))
        yield helper.make_node("Greater", [read, f"{result}::least"], [f"{result}::more"])
        yield from anywhere(f"{result}::more")
        yield helper.make_node("Where", [f"{result}::more.any", last, f"{result}::least"], [f"{result}::or_least"])
        last = f"{result}::or_least"
    yield helper.make_node("IsNaN", [read], [f"{result}::odd"])
    yield from anywhere(f"{result}::odd")
    yield _constant(f"{result}::nan", kind, float("nan"))
    yield helper.make_node("Where", [f"{result}::odd.any", f"{result}::nan", last], [result])


def _without_nan(graph: Any, kinds: Mapping[str, int]) -> set[str]:
    """Values that are whole numbers, constants, or chosen from such by whatever: in none of them is a NaN."""
    import numpy as np
    from onnx import numpy_helper

    def sound(tensor: Any) -> bool:
        readable = tensor.data_type in _FLOATS and not tensor.external_data
        return readable and not np.isnan(numpy_helper.to_array(tensor)).any()

    found = {name for name, kind in kinds.items() if kind and kind not in _FLOATS}
    found.update(tensor.name for tensor in graph.initializer if sound(tensor))
    for node in graph.node:
        if node.domain:
            continue
        if node.op_type == "Constant":
            value = node.attribute[0]
            safe = sound(value.t) if value.HasField("t") else not np.isnan([value.f, *value.floats]).any()
        elif node.op_type == "Cast":
            safe = node.input[0] in found
        else:
            safe = node.op_type in _TAME and found.issuperset(node.input[_TAME[node.op_type]])
        if safe:
            found.update(node.output)
    return found
