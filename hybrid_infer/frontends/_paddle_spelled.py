"""Operators that paddle2onnx lacks, spelled out in others that it has; None where a form of one is left to eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._types import NOWHERE
from hybrid_infer.frontends._paddle_graphs import added
from hybrid_infer.frontends._paddle_terms import is_float
from hybrid_infer.frontends._paddle_windows import constant, lengths

_TABLE = 512  # entries of a table that each value is compared with
_PRODUCTS = 256  # that are written out one after the other
_STEPS = 1024  # of a search, where their number varies
_END = 2**31 - 1  # behind the last element of any axis


def _sequence_mask(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """As long as its second input or, where that is negative, as its longest sequence."""
    import paddle

    lengths, given = inputs
    longest = constant(given)
    if longest == 0:
        return None
    if longest is None:
        wanted, found = (paddle.reshape(paddle.cast(each, "int64"), []) for each in (given, paddle.max(lengths)))
        count = paddle.where(wanted < 0, found, wanted)
    else:
        count = int(longest) if longest > 0 else paddle.reshape(paddle.cast(paddle.max(lengths), "int64"), [])
    kind = lengths.dtype if lengths.is_floating_point() else "int64"
    reached = paddle.cast(paddle.unsqueeze(lengths, -1), kind) > paddle.cast(paddle.arange(count), kind)
    return paddle.cast(reached, op.result(0).dtype)


def _searchsorted(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """By comparison with each entry. Values that are not finite come last, whatever their sign."""
    import paddle

    table, values = inputs
    size = table.shape[-1]
    if not 0 <= size <= _TABLE:
        raise TraceError(f"{op.name()} searches a table of more than {_TABLE} entries, or of a size that varies")
    entries = table if len(table.shape) == 1 else paddle.unsqueeze(table, -2)
    wanted = paddle.unsqueeze(values, -1)
    passed = entries <= wanted if attributes["right"] else entries < wanted
    count = paddle.sum(paddle.cast(passed, "int64"), axis=-1)
    if values.is_floating_point():
        count = paddle.where(paddle.isfinite(values), count, paddle.full_like(count, size))
    return paddle.cast(count, op.result(0).dtype)


def _cumprod(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """One product after the other: in another order, products of fractions overflow or vanish at other places.

    Whole numbers wrap around alike in any order: each times the one that lies 1, 2, 4, ... before it.
    """
    import paddle

    value = inputs[0]
    if attributes["exclusive"] or attributes["reverse"] or not value.shape:
        return None
    axis = attributes["dim"] % len(value.shape)
    size, step = value.shape[axis], 1
    if size < 0:
        raise TraceError(f"{op.name()} along a dimension that varies")
    if size > 1 and value.is_floating_point():
        if size > _PRODUCTS:
            raise TraceError(f"{op.name()} along a dimension of more than {_PRODUCTS}")
        found = paddle.split(value, size, axis)
        for place in range(1, size):
            found[place] = found[place - 1] * found[place]
        return paddle.concat(found, axis)
    while step < size:
        ahead = paddle.slice(value, [axis], [0], [step])
        here, before = (paddle.slice(value, [axis], [at], [at + size - step]) for at in (step, 0))
        value = paddle.concat([ahead, here * before], axis)
        step *= 2
    return paddle.assign(value) if value is inputs[0] else value


def _gather_tree(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """What beams of a search have chosen, from the last step back: each by the parents that the one behind it has.

    The beam of each step is found from that 1, 2, 4, ... steps behind, the last of which has its own. Of a parent that
    is no beam, or more steps than that reaches, an engine is asked for one that is not there: the eager method answers.
    """
    import paddle

    chosen, parents = inputs[0], paddle.cast(inputs[1], "int64")
    steps, beams = (paddle.cast(paddle.shape(parents)[axis], "int64") for axis in (0, 2))
    own = paddle.zeros_like(paddle.slice(parents, [0], [0], [1])) + paddle.cast(paddle.arange(beams), "int64")
    parents = paddle.where(parents < 0, paddle.full([], NOWHERE, "int64"), parents)
    beam = paddle.concat([paddle.slice(parents, [0], [1], [_END]), own], 0)
    if chosen.shape[0] < 0:
        beam = beam + paddle.cast(steps > _STEPS, "int64") * NOWHERE
    place, behind = paddle.cast(paddle.arange(steps), "int64"), 1
    while behind < (chosen.shape[0] if chosen.shape[0] >= 0 else _STEPS):
        further = paddle.index_select(beam, paddle.minimum(place + behind, steps - 1), 0)
        beam = paddle.take_along_axis(beam, further, -1, broadcast=False)
        behind *= 2
    return paddle.take_along_axis(chosen, beam, -1, broadcast=False)


def _logsumexp(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """As Paddle has it, to which what is infinite is no number here: engines find a sum."""
    import paddle

    value = inputs[0]
    if not is_float(value):
        return None
    if not value.ndim:
        return paddle.log(paddle.exp(value - value)) + value
    axes = [] if attributes["reduce_all"] else [axis % value.ndim for axis in attributes["axis"]]
    axes = axes or list(range(value.ndim))
    most = paddle.max(value, axis=axes, keepdim=True)
    found = paddle.log(paddle.sum(paddle.exp(value - most), axis=axes, keepdim=True)) + most
    if attributes["keepdim"]:
        return found
    return paddle.squeeze(found, axes)


def _index_add(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, places, rows = inputs
    axis, order = attributes["axis"] % len(value.shape), list(range(len(value.shape)))
    order[0], order[axis] = order[axis], order[0]
    if axis == 0:
        return added(value, places, rows)
    return paddle.transpose(added(paddle.transpose(value, order), places, paddle.transpose(rows, order)), order)


def _scatter(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Rows that are added to where they are to be: the converter keeps what was there where their sum is 0."""
    import paddle

    value, places, rows = inputs
    if attributes["overwrite"]:
        return None
    places = paddle.reshape(places, [-1])
    emptied = paddle._C_ops.scatter(value, places, paddle.zeros_like(rows), True)
    return added(emptied, places, rows)


def _affine_grid(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Places in an image between -1 and 1, of pixels' centres or of corners, moved by a matrix each."""
    import paddle

    matrix, wanted = inputs
    sizes = constant(wanted)
    if sizes is None:
        raise TraceError(f"{op.name()} of a size that varies")
    if len(sizes) != 4 or min(sizes[2:]) < 2:
        return None
    height, width = (int(size) for size in sizes[2:])

    def line(count: int) -> Any:
        end = 1.0 if attributes["align_corners"] else (count - 1) / count
        return paddle.linspace(-end, end, count, matrix.dtype)

    columns = paddle.expand(paddle.reshape(line(width), [1, width]), [height, width])
    rows = paddle.expand(paddle.reshape(line(height), [height, 1]), [height, width])
    places = paddle.stack([columns, rows, paddle.ones([height, width], matrix.dtype)], -1)
    moved = paddle.matmul(paddle.reshape(places, [1, height * width, 3]), matrix, transpose_y=True)
    return paddle.reshape(moved, [-1, height, width, 2])


def _full_like_batch(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """A constant as long as its input along one axis: what a number becomes that a tensor is to divide, ``1 / x``."""
    import paddle

    sizes = list(attributes["shape"])
    sizes[attributes["output_dim_idx"]] = paddle.shape(inputs[0])[attributes["input_dim_idx"]]
    return paddle.full(sizes, attributes["value"], op.result(0).dtype)


def _flip(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Along a dimension that varies, and of float64, which the converter turns round in float32: by the places of its
    elements, the last one first."""
    import paddle

    result = inputs[0]
    axes = [axis % len(result.shape) for axis in attributes["axis"]]
    if result.dtype != paddle.float64 and all(result.shape[axis] >= 0 for axis in axes):
        return None
    for axis in axes:
        count = paddle.shape(result)[axis]
        result = paddle.index_select(result, count - 1 - paddle.arange(count), axis)
    return result


def _eye(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of sizes that are computed."""
    import paddle

    if all(constant(size) is not None for size in inputs):
        return None
    rows, columns = (paddle.arange(paddle.reshape(paddle.cast(size, "int64"), [])) for size in inputs)
    return paddle.cast(paddle.unsqueeze(rows, 1) == paddle.unsqueeze(columns, 0), op.result(0).dtype)


def _pixel_unshuffle(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, step = inputs[0], attributes["downscale_factor"]
    if attributes["data_format"] != "NCHW":
        return None
    height, width = (size // step for size in lengths(value, 2))
    channels = value.shape[1]
    split = paddle.reshape(value, [-1, channels, height, step, width, step])
    return paddle.reshape(paddle.transpose(split, [0, 1, 3, 5, 2, 4]), [-1, channels * step * step, height, width])


def _channel_shuffle(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, groups = inputs[0], attributes["groups"]
    if attributes["data_format"] != "NCHW":
        return None
    split = paddle.reshape(value, [0, groups, value.shape[1] // groups, -1])
    return paddle.reshape(paddle.transpose(split, [0, 2, 1, 3]), paddle.shape(value))


def _bilinear(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    left, right, weight, bias = inputs
    mixed = paddle.matmul(paddle.unsqueeze(left, [1, 2]), weight) * paddle.unsqueeze(right, [1, 2])
    result = paddle.sum(mixed, axis=[2, 3])
    return result + bias if bias.initialized() else result


def _atan2(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The first quadrant's angle, by the signs of both, those of zeros among them."""
    import paddle

    if not inputs[0].is_floating_point():
        return None
    y, x = inputs

    def below(value: Any) -> Any:
        return (value < 0) | ((value == 0) & (paddle.reciprocal(value) < 0))

    up, along = paddle.abs(y), paddle.abs(x)
    within = paddle.atan(up / along)
    infinite, nothing = (up == math.inf) & (along == math.inf), (up == 0) & (along == 0)
    quarter, zero = paddle.cast(infinite, y.dtype) * (math.pi / 4), paddle.cast(nothing, y.dtype) * 0.0
    within = paddle.where(nothing, zero, paddle.where(infinite, quarter, within))
    nowhere = within > math.inf  # of the shape of both
    within = paddle.where(below(x) | nowhere, math.pi - within, within)
    return paddle.where(below(y) | nowhere, -within, within)


def _arange(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter takes bounds of another type than the result's for no scalars."""
    import paddle

    for place, value in enumerate(inputs):
        if value.dtype != op.result(0).dtype:
            op.operand(place).set_source(paddle.cast(value, op.result(0).dtype))
    return None


def _logical(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of numbers, which are true unless they are 0; ONNX takes truths alone."""
    import paddle

    if all(value.dtype == paddle.bool for value in inputs):
        return None
    truths = [paddle.cast(value, "bool") for value in inputs]
    return getattr(paddle, op.name().removeprefix("pd_op.").rstrip("_"))(*truths)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "arange": _arange,
    "sequence_mask": _sequence_mask,
    "searchsorted": _searchsorted,
    "cumprod": _cumprod,
    "gather_tree": _gather_tree,
    "logsumexp": _logsumexp,
    "index_add": _index_add,
    "scatter": _scatter,
    "scatter_": _scatter,
    "affine_grid": _affine_grid,
    "full_batch_size_like": _full_like_batch,
    "flip": _flip,
    "eye": _eye,
    "pixel_unshuffle": _pixel_unshuffle,
    "channel_shuffle": _channel_shuffle,
    "atan2": _atan2,
    "bilinear": _bilinear,
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), _logical),
}
