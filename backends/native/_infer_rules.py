"""The rule of each operator: type and shape of its results from those of its operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from hybrid_infer.backends.native import _numpy_elementwise
from hybrid_infer.backends.native._infer import Rule, Scope, Shape, Unknown, number, place
from hybrid_infer.backends.native._infer_selection import SELECTION
from hybrid_infer.backends.native._plan import Step, Value
from hybrid_infer.backends.native._size import Dim, product, smallest
from hybrid_infer.backends.native._terms import terms

_BOOLEAN = ("And", "Or", "Xor", "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf")


def _elementwise(scope: Scope, step: Step) -> list[Value]:
    shapes = [scope.shape(step, i) for i in range(len(step.inputs)) if step.inputs[i]]
    if step.op == "Clip":  # bounds are scalars
        shapes = shapes[:1]
    if step.op == "CastLike":
        return [Value(scope.dtype(step, 1), shapes[0])]
    if step.op == "Cast":
        return [Value(step.attributes["to"], shapes[0])]
    if step.op in _BOOLEAN:
        return [Value("bool", scope.meet(*shapes))]
    return [Value(scope.dtype(step, 1 if step.op == "Where" else 0), scope.meet(*shapes))]


def _same(scope: Scope, step: Step) -> list[Value]:
    return [Value(scope.dtype(step), scope.shape(step))]


def _dropout(scope: Scope, step: Step) -> list[Value]:
    return [*_same(scope, step), Value("bool", scope.shape(step))]


def _reduce(scope: Scope, step: Step) -> list[Value]:
    shape, dtype = scope.shape(step), scope.dtype(step)
    keep = step.attributes.get("keepdims", 1)
    if shape is None:
        return [Value(dtype, None)]
    if scope.has(step, 1):
        given = scope.content(step, 1)
        if given is None:
            return [Value(dtype, scope.unknown(step, len(shape)) if keep else None)]
        axes = {place(number(axis), len(shape)) for axis in given}
    else:
        axes = set()
    if not axes:
        if step.attributes.get("noop_with_empty_axes"):
            return [Value(dtype, shape)]
        axes = set(range(len(shape)))
    return [Value(dtype, _without(shape, axes, bool(keep)))]


def _without(shape: Shape, axes: set[int], keep: bool) -> Shape:
    if keep:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def _arg(scope: Scope, step: Step) -> list[Value]:
    shape = scope.shape(step)
    if shape is None:
        return [Value("int64", None)]
    axis = place(step.attributes.get("axis", 0), len(shape))
    return [Value("int64", _without(shape, {axis}, bool(step.attributes.get("keepdims", 1))))]


def _matmul(scope: Scope, step: Step) -> list[Value]:
    a, b, dtype = scope.shape(step, 0), scope.shape(step, 1), scope.dtype(step)
    if a is None or b is None:
        return [Value(dtype, None)]
    if not a or not b:
        raise ValueError("a product of a scalar")
    left, right = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    scope.require("same", left[-1], right[-2])
    batch = scope.meet(left[:-2], right[:-2])
    assert batch is not None
    tail = (*left[-2:-1][: len(a) > 1], *right[-1:][: len(b) > 1])
    return [Value(dtype, (*batch, *tail))]


def _gemm(scope: Scope, step: Step) -> list[Value]:
    a, b, dtype = scope.shape(step, 0), scope.shape(step, 1), scope.dtype(step)
    if a is None or b is None:
        raise Unknown
    rows, inner = a[::-1] if step.attributes.get("transA") else a
    other, columns = b[::-1] if step.attributes.get("transB") else b
    scope.require("same", inner, other)
    scope.spread(scope.shape(step, 2), (rows, columns))
    return [Value(dtype, (rows, columns))]


def _einsum(scope: Scope, step: Step) -> list[Value]:
    dtype, shapes = scope.dtype(step), [scope.shape(step, i) for i in range(len(step.inputs))]
    told = [shape for shape in shapes if shape is not None]
    if len(told) < len(shapes):
        raise Unknown
    inner, result = terms(step.attributes["equation"], [len(shape) for shape in told])
    sizes: dict[str, Dim] = {}
    for term, shape in zip(inner, told, strict=True):
        for letter, size in zip(term, shape, strict=True):
            scope.require("meet", sizes.get(letter, 1), size)
            if sizes.get(letter, 1) == 1:
                sizes[letter] = size
    return [Value(dtype, tuple(sizes[letter] for letter in result))]


def _layer_norm(scope: Scope, step: Step) -> list[Value]:
    shape = scope.shape(step)
    if shape is None:
        raise Unknown
    axis = place(step.attributes.get("axis", -1), len(shape))
    for i in range(1, len(step.inputs)):
        scope.spread(scope.shape(step, i), shape[axis:])
    rest = (*shape[:axis], *(1 for _ in shape[axis:]))
    narrow = "float32" if scope.dtype(step) in ("float16", "bfloat16") else scope.dtype(step)
    return [Value(scope.dtype(step), shape), Value(narrow, rest), Value(narrow, rest)]


def _by_channel(scope: Scope, step: Step) -> list[Value]:
    """Of the shape of an image, with operands that have a number for each channel."""
    shape = scope.shape(step)
    for i in range(1, len(step.inputs)):
        if shape is not None and (each := scope.shape(step, i)):
            scope.require("same", each[0], shape[1])
    return _same(scope, step)


def _window(scope: Scope, step: Step, shape: Shape, kernel: Sequence[int]) -> Shape:
    """The places of a window along each axis."""
    count = len(shape) - 2
    stride = step.attributes.get("strides") or [1] * count
    dilation = step.attributes.get("dilations") or [1] * count
    mode = step.attributes.get("auto_pad", "NOTSET")
    pads = (step.attributes.get("pads") if mode == "NOTSET" else None) or [0] * (2 * count)
    found: list[Dim] = []
    for i, size in enumerate(shape[2:]):
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            found.append((size + stride[i] - 1) // stride[i])
            continue
        span = (kernel[i] - 1) * dilation[i] + 1
        room = size + (pads[i] + pads[i + count] - span)
        over = stride[i] - 1 if step.attributes.get("ceil_mode") else 0
        scope.require("least", room + over, 0)
        if step.attributes.get("ceil_mode"):  # and a window does not begin beyond what it goes over
            begun = (size + pads[i] + stride[i] - 1) // stride[i]
            found.append(smallest((room + over) // stride[i] + 1, begun))
        else:
            found.append(room // stride[i] + 1)
    return tuple(found)


def _conv(scope: Scope, step: Step) -> list[Value]:
    x, w, dtype = scope.shape(step, 0), scope.shape(step, 1), scope.dtype(step)
    if x is None or w is None:
        raise Unknown
    places = _window(scope, step, x, [number(n) for n in w[2:]])
    scope.require("same", x[1], w[1] * step.attributes.get("group", 1))
    return [Value(dtype, (x[0], w[0], *places))]


def _conv_transpose(scope: Scope, step: Step) -> list[Value]:
    x, w, dtype = scope.shape(step, 0), scope.shape(step, 1), scope.dtype(step)
    if x is None or w is None:
        raise Unknown
    count, at = len(x) - 2, step.attributes
    channels = w[1] * at.get("group", 1)
    scope.require("same", x[1], w[0])
    if at.get("output_shape"):
        return [Value(dtype, (x[0], channels, *at["output_shape"][-count:]))]
    stride, dilation = at.get("strides") or [1] * count, at.get("dilations") or [1] * count
    if at.get("auto_pad", "NOTSET").startswith("SAME"):
        return [Value(dtype, (x[0], channels, *(n * s for n, s in zip(x[2:], stride, strict=True))))]
    extra, pads = at.get("output_padding") or [0] * count, at.get("pads") or [0] * (2 * count)
    places = [
        (x[2 + i] - 1) * stride[i] + extra[i] + (number(w[2 + i]) - 1) * dilation[i] + 1 - pads[i] - pads[i + count]
        for i in range(count)
    ]
    for size, given in zip(places, x[2:], strict=True):
        scope.require("least", given, 1)
        scope.require("least", size, 0)
    return [Value(dtype, (x[0], channels, *places))]


def _pool(scope: Scope, step: Step) -> list[Value]:
    x, dtype = scope.shape(step), scope.dtype(step)
    if x is None:
        raise Unknown
    shape = (x[0], x[1], *_window(scope, step, x, step.attributes["kernel_shape"]))
    return [Value(dtype, shape), Value("int64", shape)]


def _global_pool(scope: Scope, step: Step) -> list[Value]:
    x = scope.shape(step)
    return [Value(scope.dtype(step), None if x is None else (*x[:2], *(1 for _ in x[2:])))]


#: Scales that have no more parts are the same numbers in every arithmetic, and so are sizes times them.
_EXACT = 256


def _resize(scope: Scope, step: Step) -> list[Value]:
    x, dtype = scope.shape(step), scope.dtype(step)
    if x is None:
        raise Unknown
    axes = [place(axis, len(x)) for axis in step.attributes.get("axes") or range(len(x))]
    shape = list(x)
    if scope.has(step, 3):
        sizes = scope.content(step, 3)
        if sizes is None or step.attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return [Value(dtype, scope.unknown(step, len(x)))]
        for axis, size in zip(axes, sizes, strict=True):
            shape[axis] = size
        return [Value(dtype, tuple(shape))]
    scales = scope.plan.constants.get(step.inputs[2]) if scope.has(step, 2) else None
    if scales is None:
        return [Value(dtype, scope.unknown(step, len(x)))]
    for axis, scale in zip(axes, map(float, scales), strict=True):
        size = shape[axis]
        if isinstance(size, int):
            shape[axis] = math.floor(scale * size)
        elif (part := Fraction(scale)).denominator <= _EXACT:
            shape[axis] = (size * part.numerator) // part.denominator
        else:
            return [Value(dtype, scope.unknown(step, len(x)))]
    return [Value(dtype, tuple(shape))]


def _recurrent(scope: Scope, step: Step) -> list[Value]:
    x, w, r, dtype = scope.shape(step, 0), scope.shape(step, 1), scope.shape(step, 2), scope.dtype(step)
    if x is None or w is None or r is None:
        raise Unknown
    directions, hidden = w[0], r[2]
    if step.attributes.get("layout"):
        last: Shape = (x[0], directions, hidden)
        every: Shape = (x[0], x[1], directions, hidden)
    else:
        last = (directions, x[1], hidden)
        every = (x[0], directions, x[1], hidden)
    return [Value(dtype, every), Value(dtype, last), Value(dtype, last)]


def _flatten(scope: Scope, step: Step) -> list[Value]:
    shape, axis = scope.shape(step), step.attributes.get("axis", 1)
    if shape is None:
        raise Unknown
    axis = axis + len(shape) if axis < 0 else axis
    return [Value(scope.dtype(step), (product(shape[:axis]), product(shape[axis:])))]


def _whole(scope: Scope, step: Step) -> list[Value]:
    if step.op == "Size":
        return [Value("int64", ())]
    shape = scope.shape(step)
    if shape is None:
        raise Unknown
    part = shape[slice(step.attributes.get("start", 0), step.attributes.get("end"))]
    return [Value("int64", (len(part),))]


def _blocks(scope: Scope, step: Step) -> list[Value]:
    x, b, dtype = scope.shape(step), step.attributes["blocksize"], scope.dtype(step)
    if x is None:
        raise Unknown
    for size, part in ((x[1], b * b),) if step.op == "DepthToSpace" else ((x[2], b), (x[3], b)):
        scope.require("same", size % part, 0)
    if step.op == "DepthToSpace":
        return [Value(dtype, (x[0], x[1] // (b * b), x[2] * b, x[3] * b))]
    return [Value(dtype, (x[0], x[1] * (b * b), x[2] // b, x[3] // b))]


def _grid_sample(scope: Scope, step: Step) -> list[Value]:
    x, grid, dtype = scope.shape(step, 0), scope.shape(step, 1), scope.dtype(step)
    if x is None or grid is None or len(x) != len(grid):
        return [Value(dtype, None)]
    scope.require("same", x[0], grid[0])
    scope.require("same", grid[-1], len(x) - 2)
    return [Value(dtype, (grid[0], x[1], *grid[1:-1]))]


def _spelled(scope: Scope, step: Step) -> list[Value]:
    return [Value(step.attributes["dtype"], tuple(step.attributes["shape"]))]


def _every(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_numpy_elementwise.TABLE, _elementwise),
    **_every(_same, "Softmax LogSoftmax Hardmax CumSum LpNormalization GroupNormalization Trilu "
             "ScatterElements ScatterND ReverseSequence"),
    **_every(_by_channel, "InstanceNormalization BatchNormalization"),
    **_every(_reduce, "ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare "
             "ReduceLogSum ReduceLogSumExp"),
    **_every(_arg, "ArgMax ArgMin"),
    **_every(_layer_norm, "LayerNormalization RMSNormalization"),
    **_every(_pool, "MaxPool AveragePool LpPool"),
    **_every(_global_pool, "GlobalAveragePool GlobalMaxPool"),
    **_every(_recurrent, "LSTM GRU RNN"),
    **_every(_blocks, "DepthToSpace SpaceToDepth"),
    **_every(_whole, "Shape Size"),
    "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum, "Conv": _conv, "ConvTranspose": _conv_transpose,
    "sizes": _spelled, "range": _spelled, "Resize": _resize, "Flatten": _flatten, "Dropout": _dropout,
    "GridSample": _grid_sample, **SELECTION,
}  # fmt: skip

