"""Whole numbers as the frameworks have them, where ONNX Runtime 1.31 does not.

On many processors it takes int64 numbers between 2**31 and 2**32, and others like them in their lower half, for
negative ones where it compares them (Max, Min, Clip, Sign, Relu, ReduceMax, ReduceMin; microsoft/onnxruntime 32475).
Its comparisons as such are right, so that these are written in terms of those. Powers and products along an axis it
computes in float64, to 16 digits; multiplications one by one are exact, and wrap around as the frameworks' do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_infer._errors import EngineError
from hybrid_infer.backends._long_sums import axes_of
from hybrid_infer.backends._small_numbers import SmallNumbers
from hybrid_infer.backends._source import replace_nodes, subgraphs

_HALF = 1 << 32
_LEAST = -(1 << 31)
_MOST_POWER = 64
_MOST_FACTORS = 4096


def spell(model: Any, kinds: Mapping[str, int]) -> bool:
    """Rewrite `model` (an onnx.ModelProto), and the graphs inside, in place; was there anything to rewrite?

    ``kinds``: element types, by name. Raises EngineError for powers and products that have no exact form.
    """
    from onnx import TensorProto

    graphs = [model.graph, *subgraphs(model.graph.node)]
    small = SmallNumbers(graphs, kinds)
    sizes: Mapping[str, Sequence[int | None] | None] | None = None
    rewritten = False
    for graph in graphs:
        nodes: list[Any] = []
        for node in graph.node:
            form = None if node.domain else _FORMS.get(node.op_type)
            kind = kinds.get(node.input[0]) if form is not None else None
            wide = kind == TensorProto.INT64 or (node.op_type in _WRAP_AROUND and kind == TensorProto.INT32)
            if form is None or kind is None or not wide or (node.op_type != "Pow" and _all_small(node, small)):
                nodes.append(node)
                continue
            if node.op_type == "ReduceProd" and sizes is None:
                sizes = _sizes(model)
            written = _Written(node, kind, small, sizes or {})
            form(written)
            nodes += written.nodes
        if nodes != list(graph.node):
            replace_nodes(graph, nodes)
            rewritten = True
    return rewritten


#: In int32 as well: the engine stops at the ends of the type.
_WRAP_AROUND = frozenset({"Pow", "ReduceProd"})


def _all_small(node: Any, small: SmallNumbers) -> bool:
    """Products of sizes are those of an array in memory, which has no 2**53 elements; others of small numbers are not.
    """
    if node.op_type == "ReduceProd":
        return small.sizes(node.input[0])
    count = 1 if node.op_type.startswith("Reduce") else len(node.input)
    return all(small.holds(name) for name in node.input[:count] if name)


def _sizes(model: Any) -> dict[str, list[int | None] | None]:
    """By name; None for one that has several in graphs beside each other."""
    from onnx import shape_inference

    found: dict[str, list[int | None] | None] = {}
    inferred = shape_inference.infer_shapes(model).graph
    for graph in (inferred, *subgraphs(inferred.node)):
        for value in (*graph.input, *graph.value_info, *graph.output):
            kind = value.type.tensor_type
            if kind.HasField("shape"):
                dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
                found[value.name] = dims if found.get(value.name, dims) == dims else None
        for tensor in graph.initializer:
            found[tensor.name] = list(tensor.dims)
    return found


class _Written:
    """The nodes that take the place of one."""

    def __init__(
        self, node: Any, kind: int, small: SmallNumbers, sizes: Mapping[str, Sequence[int | None] | None]
    ) -> None:  # fmt: skip
        self.node, self.kind, self.small, self.sizes = node, kind, small, sizes
        self.nodes: list[Any] = []

    def __call__(self, operator: str, *given: str, last: bool = False, **attributes: Any) -> str:
        """Append a node; the `last` one gives the result. Returns the name of what it gives."""
        from onnx import helper

        name = self.node.output[0] if last else f"{self.node.output[0]}::exact{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [*given], [name], **attributes))
        return name

    def number(self, value: int, *dims: int) -> str:
        """Of the type of what the node is given."""
        return self._constant(self.kind, value, dims)

    def size(self, value: int, *dims: int) -> str:
        from onnx import TensorProto

        return self._constant(TensorProto.INT64, value, dims)

    def _constant(self, kind: int, value: int, dims: Sequence[int]) -> str:
        from onnx import helper

        return self("Constant", value=helper.make_tensor("value", kind, dims, [value]))

    def again(self, given: str, **attributes: Any) -> str:
        """The node itself, of something else."""
        from onnx import helper

        copied = type(self.node).FromString(self.node.SerializeToString())
        name = f"{self.node.output[0]}::exact{len(self.nodes)}"
        copied.name, copied.input[0], copied.output[0] = "", given, name
        kept = [each for each in copied.attribute if each.name not in attributes]
        del copied.attribute[:]
        copied.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in attributes.items())])
        self.nodes.append(copied)
        return name

    def greater(self, one: str, other: str, last: bool) -> str:
        return self("Where", self("Greater", one, other), one, other, last=last)

    def less(self, one: str, other: str, last: bool) -> str:
        return self("Where", self("Less", one, other), one, other, last=last)


def _of_all(choose: Callable[[_Written, str, str, bool], str]) -> Callable[[_Written], None]:
    def form(written: _Written) -> None:
        first, *others = written.node.input
        if not others:
            written("Identity", first, last=True)
        for n, name in enumerate(others, 1):
            first = choose(written, first, name, n == len(others))

    return form


def _clip(written: _Written) -> None:
    given, low, high = [*written.node.input, "", ""][:3]
    if low:
        given = written.greater(given, low, not high)
    if high:
        given = written.less(given, high, True)
    if not low and not high:
        written("Identity", given, last=True)


def _relu(written: _Written) -> None:
    written.greater(written.node.input[0], written.number(0), True)


def _sign(written: _Written) -> None:
    given, zero = written.node.input[0], written.number(0)
    above, below = (written("Cast", written(each, given, zero), to=written.kind) for each in ("Greater", "Less"))
    written("Sub", above, below, last=True)


def _extreme(written: _Written) -> None:
    """Of the upper halves first, then of the lower ones beside such: both are numbers that 32 bits hold."""
    given, base, least = written.node.input[0], written.number(_HALF), written.number(_LEAST)
    low = written("Mod", given, base)
    high = written("Div", written("Sub", given, low), base)
    low = written("Add", low, least)  # from 0 to 2**32, as from -2**31 to 2**31
    found = written.again(high, keepdims=1)
    nothing = least if written.node.op_type == "ReduceMax" else written.number(_HALF - 1 + _LEAST)
    low = written.again(written("Where", written("Equal", high, found), low, nothing))
    above = written("Mul", written.again(high), base)
    written("Add", above, written("Sub", low, least), last=True)


def _power(written: _Written) -> None:
    """By squares."""
    from onnx import TensorProto

    exponent = written.small.constant(written.node.input[1])
    whole = exponent is not None and exponent.size == 1 and float(exponent.item()).is_integer()
    if not whole or not 0 <= exponent.item() <= _MOST_POWER:
        kind = "int64" if written.kind == TensorProto.INT64 else "int32"
        raise EngineError("onnxruntime", f"computes powers of {kind} in float64, and the exponent is not constant")
    rest, square, found = int(exponent.item()), written.node.input[0], ""
    if exponent.ndim:  # the result has its axes too
        square = written("Mul", square, written.number(1, *exponent.shape))
    while rest:
        if rest & 1:
            found = written("Mul", found, square) if found else square
        rest >>= 1
        if rest:
            square = written("Mul", square, square)
    if not found:
        found = written("Add", written("Mul", square, written.number(0)), written.number(1))
    written("Identity", found, last=True)


def _product(written: _Written) -> None:
    node, sizes = written.node, written.sizes.get(written.node.input[0])
    if sizes is not None and not len(sizes):
        written("Identity", node.input[0], last=True)
        return
    listed = written.small.tensor(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    axes = None if sizes is None else axes_of(node, len(sizes), {} if listed is None else {node.input[1]: listed})
    if sizes is None or axes is None:
        raise EngineError("onnxruntime", "multiplies whole numbers in float64, along axes that the graph does not tell")
    counts = [size for axis in axes if (size := sizes[axis]) is not None]
    if len(counts) == len(axes) and all(0 < count <= _MOST_FACTORS for count in counts):
        _by_halves(written, axes, counts)
    else:
        _one_by_one(written, axes, len(sizes))


def _by_halves(written: _Written, axes: Sequence[int], counts: Sequence[int]) -> None:
    """Half of the factors with the other half, as long as there are two."""
    found = written.node.input[0]
    for axis, left in zip(axes, counts, strict=True):
        while left > 1:
            half = left // 2
            parts = [
                written("Slice", found, *(written.size(each, 1) for each in (start, end, axis)))
                for start, end in ((0, half), (half, 2 * half), (2 * half, left))
                if start < end
            ]
            found = written("Mul", *parts[:2])
            left -= half
            if len(parts) > 2:
                found = written("Concat", found, parts[2], axis=axis)
    if not next((each.i for each in written.node.attribute if each.name == "keepdims"), 1):
        for axis in reversed(axes):
            found = written("Gather", found, written.size(0), axis=axis)
    written("Identity", found, last=True)


def _one_by_one(written: _Written, axes: Sequence[int], rank: int) -> None:
    """In a loop over all places along the axes, of results side by side."""
    from onnx import helper

    one = helper.make_tensor("one", written.kind, [1], [1])
    given, row = written.node.input[0], written.size(-1, 1)
    shape = written("Shape", written.again(given))
    ones = written("ConstantOfShape", written("Reshape", shape, row), value=one)
    ones = written("Reshape", ones, row)
    count = written("Shape", ones)
    turns = written("Div", written("Reshape", written("Size", given), row), written("Max", count, written.size(1, 1)))
    rows = written("Transpose", given, perm=[*axes, *(axis for axis in range(rank) if axis not in axes)])
    rows = written("Reshape", rows, written("Concat", turns, count, axis=0), allowzero=1)
    first = written("Reshape", ones, written("Concat", written.size(1, 1), count, axis=0), allowzero=1)
    rows = written("Concat", first, rows, axis=0)  # a loop fails that has no turn
    names = [f"{written.node.output[0]}::{part}" for part in ("before", "factor", "after")]
    values = [helper.make_tensor_value_info(name, written.kind, None) for name in names]
    body = helper.make_graph([helper.make_node("Mul", names[:2], names[2:])], "body", values[:2], values[2:])
    found = written("Scan", ones, rows, body=body, num_scan_inputs=1)
    written("Reshape", found, shape, last=True, allowzero=1)


_FORMS: dict[str, Callable[[_Written], None]] = {
    "Clip": _clip,
    "Max": _of_all(_Written.greater),
    "Min": _of_all(_Written.less),
    "Pow": _power,
    "ReduceMax": _extreme,
    "ReduceMin": _extreme,
    "ReduceProd": _product,
    "Relu": _relu,
    "Sign": _sign,
}
