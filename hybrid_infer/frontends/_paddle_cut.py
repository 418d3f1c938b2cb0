"""Operators that ONNX has and paddle2onnx lacks: cut out of a program, and put into the converted graph as ONNX's own.

In the program their results become inputs and their operands results; in the graph, nodes join the two again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_images import LEAST
from hybrid_infer.frontends._paddle_purity import needed
from hybrid_infer.frontends._paddle_recurrent import prepared
from hybrid_infer.frontends._recurrent import PLAIN, operator, settings


@dataclass
class Cut:
    """``operands``, ``results``: values of the program. ``nodes(given, made)``: ONNX's, by names of both."""

    operands: list[Any]
    results: list[Any]
    nodes: Callable[[Sequence[str], Sequence[str]], list[Any]]


@dataclass
class Gap:
    """Where a cut was: which results of the program feed its nodes, and the inputs that they stand for."""

    operands: list[int]
    made: list[str]
    nodes: Callable[[Sequence[str], Sequence[str]], list[Any]]


def cut(program: Any, results: Sequence[Any]) -> tuple[list[Any], list[Any], list[Gap]]:
    """Cut a program, in static mode: the inputs and results that it has beside its own, and where they belong.

    Results come after those given.
    """
    import paddle

    inputs: list[Any] = []
    extra: list[Any] = []
    gaps: list[Gap] = []
    live = needed(program, results)
    with paddle.static.program_guard(program, paddle.static.Program()):
        for op in list(program.global_block().ops):
            maker = _MAKERS.get(op.name().removeprefix("pd_op."))
            if maker is None or not any(value in live for value in op.results()):
                continue
            before = paddle.pir.get_current_insertion_point()
            paddle.pir.set_insertion_point(op)
            try:
                made = maker(op, op.operands_source(), op.attrs())
                operands = [] if made is None else [paddle.assign(value) for value in made.operands]
            finally:
                paddle.pir.set_insertion_point(before)
            if made is None:
                continue
            names = [f"cut{len(gaps)}_{i}" for i in range(len(made.results))]
            for name, value in zip(names, made.results, strict=True):
                stand_in = paddle.static.data(name, list(value.shape), value.dtype)
                value.replace_all_uses_with(stand_in)
                inputs.append(stand_in)
            first = len(results) + len(extra)
            gaps.append(Gap(list(range(first, first + len(operands))), names, made.nodes))
            extra += operands
    return inputs, extra, gaps


def joined(model_bytes: bytes, gaps: Sequence[Gap], count: int) -> bytes:
    """The converted model with nodes where the program was cut, and with its own `count` results."""
    import onnx

    if not gaps:
        return model_bytes
    model = onnx.load_from_string(model_bytes)
    graph = model.graph
    outputs = [value.name for value in graph.output]
    nodes = [*graph.node]
    for gap in gaps:
        nodes += gap.nodes([outputs[place] for place in gap.operands], gap.made)
    names = {name for gap in gaps for name in gap.made}
    kept = [value for value in graph.input if value.name not in names]
    known = {value.name for value in kept} | {value.name for value in graph.initializer}
    ordered = list(_in_order(nodes, known))
    del graph.node[:], graph.input[:], graph.output[count:]
    graph.node.extend(ordered)
    graph.input.extend(kept)
    made: bytes = model.SerializeToString(deterministic=True)
    return made


def _in_order(nodes: Sequence[Any], known: set[str]) -> Iterator[Any]:
    """The nodes, each behind those whose results it reads, else in the order that they have."""
    makers = {name: node for node in nodes for name in node.output if name}
    done: set[int] = set()
    for node in nodes:
        stack = [(node, False)]
        while stack:
            each, ready = stack.pop()
            if id(each) in done:
                continue
            if ready:
                done.add(id(each))
                yield each
                continue
            stack.append((each, True))
            needed = [makers[name] for name in _read(each) if name not in known and name in makers]
            stack += [(maker, False) for maker in reversed(needed) if id(maker) not in done]


def _read(node: Any) -> Iterator[str]:
    """What a node reads, and what the graphs inside of it read from outside."""
    yield from node.input
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            made = {name for inner in graph.node for name in inner.output} | {value.name for value in graph.input}
            yield from (name for inner in graph.node for name in _read(inner) if name not in made)
            yield from (value.name for value in graph.output if value.name not in made)


def _suppression(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Cut | None:
    """Boxes that come in the order of their scores, so that any falling ones will do.

    One whose corners are exchanged overlaps none; ONNX's operator would put them in order, so it is made one without
    an area, which overlaps none there.
    """
    import onnx
    import paddle

    boxes, helper = inputs[0], onnx.helper
    if boxes.dtype.name != "FLOAT32":
        return None
    first, second = paddle.split(boxes, 2, -1)
    boxes = paddle.concat([first, paddle.maximum(first, second)], -1)
    count = paddle.shape(boxes)[:1]
    scores = paddle.reshape(-paddle.cast(paddle.arange(count[0]), "float32"), [1, 1, -1])
    limit = paddle.full([1], float(attributes["threshold"]), "float32")

    def nodes(given: Sequence[str], made: Sequence[str]) -> list[Any]:
        chosen, column = f"{made[0]}_chosen", f"{made[0]}_column"
        return [
            helper.make_node("NonMaxSuppression", given, [chosen]),
            helper.make_node("Constant", [], [column], value_int=2),
            helper.make_node("Gather", [chosen, column], made, axis=1),
        ]

    return Cut([paddle.unsqueeze(boxes, 0), scores, paddle.cast(count, "int64"), limit], [op.result(0)], nodes)


def _recurrent(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Cut | None:
    """Of one level, with a length for each sequence or without gates."""
    import onnx

    mode, timed = attributes["mode"], inputs[3].initialized()
    if not timed and mode not in PLAIN:
        return None
    operands = prepared(op, inputs, attributes)
    states = [value for reader in op.result(2).all_used_ops() for value in reader.results()]
    options = settings(mode, attributes["hidden_size"], 2 if attributes["is_bidirec"] else 1)

    def nodes(given: Sequence[str], made: Sequence[str]) -> list[Any]:
        each, turned, shape = (f"{made[0]}_{word}" for word in ("each", "turned", "shape"))
        helper, taken = onnx.helper, [*given[:4], *([] if timed else [""]), *given[4:]]
        return [
            helper.make_node(operator(mode), taken, [each, *made[1:]], **options),
            helper.make_node("Transpose", [each], [turned], perm=[0, 2, 1, 3]),
            helper.make_node("Constant", [], [shape], value_ints=[0, 0, -1]),
            helper.make_node("Reshape", [turned, shape], [made[0]]),
        ]

    return Cut(operands, [op.result(0), *states], nodes)


def _regions(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Cut:
    """Each region is of the image that its place in the list says; the converter takes all to be of the first one.

    It overlooks as well that regions may be of pixels' corners (``aligned=False``).
    """
    import onnx

    images, regions, image = _of_images(op, inputs)
    options = {
        "output_height": attributes["pooled_height"],
        "output_width": attributes["pooled_width"],
        "spatial_scale": attributes["spatial_scale"],
        "sampling_ratio": max(attributes["sampling_ratio"], 0),
        "coordinate_transformation_mode": "half_pixel" if attributes["aligned"] else "output_half_pixel",
    }

    def nodes(given: Sequence[str], made: Sequence[str]) -> list[Any]:
        return [onnx.helper.make_node("RoiAlign", given, made, **options)]

    return Cut([images, regions, image], [op.result(0)], nodes)


def _of_images(op: Any, inputs: list[Any]) -> tuple[Any, Any, Any]:
    """Images, regions, and of which image each region is."""
    import paddle

    images, regions, count = inputs
    if images.dtype.name != "FLOAT32" or not count.initialized():
        raise TraceError(f"{op.name()} of {images.dtype.name.lower()}, or without the number of regions of each image")
    ends = paddle.cumsum(paddle.cast(count, "int64"), 0)
    places = paddle.arange(paddle.shape(regions)[0], dtype="int64")
    passed = paddle.unsqueeze(places, 1) >= paddle.unsqueeze(ends, 0)
    return images, regions, paddle.sum(paddle.cast(passed, "int64"), axis=1)


def _largest_of_regions(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Cut | None:
    """``roi_pool``, which passes a NaN by. Of which image a region is stands before its corners."""
    import onnx
    import paddle

    if not op.result(1).use_empty():
        return None
    images, regions, image = _of_images(op, inputs)
    table = paddle.concat([paddle.unsqueeze(paddle.cast(image, "float32"), 1), regions], 1)
    least = paddle.full([], LEAST, "float32")
    numbers = paddle.where(images >= least, images, least)
    options = {
        "pooled_shape": [attributes["pooled_height"], attributes["pooled_width"]],
        "spatial_scale": attributes["spatial_scale"],
    }

    def nodes(given: Sequence[str], made: Sequence[str]) -> list[Any]:
        return [onnx.helper.make_node("MaxRoiPool", given, made, **options)]

    return Cut([numbers, table], [op.result(0)], nodes)


_MAKERS: dict[str, Callable[[Any, list[Any], dict[str, Any]], Cut | None]] = {
    "nms": _suppression,
    "rnn": _recurrent,
    "roi_align": _regions,
    "roi_pool": _largest_of_regions,
}
