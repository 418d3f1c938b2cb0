"""Attributes of operators that paddle2onnx overlooks: the operator spelled out where that is easy, else refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends import _paddle_softmax
from hybrid_infer.frontends._paddle_arranged import put
from hybrid_infer.frontends._paddle_recurrent import parts, recurrent
from hybrid_infer.frontends._paddle_terms import is_float
from hybrid_infer.frontends._paddle_windows import constant


def _refuse(op: Any, what: str, remedy: str = "Leave that part outside") -> TraceError:
    return TraceError(f"{op.name()} {what}, which paddle2onnx overlooks", remedy)


def _sum(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Paddle adds in the type of the result, the converter in that of the value.

    Past the end of int32, Paddle goes on at the other one.
    """
    import paddle

    value, axes, kind = inputs[0], constant(inputs[1]), op.result(0).dtype
    if axes is None or (value.dtype == kind and kind != paddle.int32):
        return None
    if value.dtype in (paddle.float16, paddle.bfloat16) and kind not in (paddle.float32, paddle.float64):
        raise TraceError("it adds numbers of half precision up as whole ones", "Cast to float32 first")
    wide = paddle.cast(value, kind)
    wide = paddle.cast(wide, "int64") if kind == paddle.int32 else wide
    return paddle.cast(paddle.sum(wide, axis=list(axes) or None, keepdim=attributes["keepdim"]), kind)


def _cumsum(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    if attributes.get("exclusive") or attributes.get("reverse"):
        raise _refuse(op, "runs backwards or leaves out an element")


def _put_along_axis(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The name of a product, and values of which there are more than places."""
    import paddle

    value, places, given = inputs
    reduce = "multiply" if attributes["reduce"] == "mul" else attributes["reduce"]
    apart = is_float(value) and (reduce == "mean" or (reduce != "assign" and not attributes["include_self"]))
    wanted, found = list(places.shape), list(given.shape)
    if found != wanted or -1 in wanted:
        axes = [axis for axis, size in enumerate(found) if size != wanted[axis] or size < 0]
        sizes = paddle.shape(places)
        starts, ends = [0] * len(axes), [sizes[axis] for axis in axes]
        # A scalar is given in the places' shape, in which a size that varies has been taken for 1.
        given = paddle.expand(paddle.slice(given, axes, starts, ends), sizes)
    elif reduce == attributes["reduce"] and not apart:
        return None
    if apart:
        return put(value, places, given, attributes["axis"], reduce, attributes["include_self"])
    return paddle._C_ops.put_along_axis(value, places, given, attributes["axis"], reduce, attributes["include_self"])


def _roll(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """By more than a dimension has, or may turn out to have, or by a computed number, such as half of a size."""
    import paddle

    value, shifts, axes = inputs[0], constant(inputs[1]), list(attributes["axis"])
    flat = not axes
    rolled = paddle.flatten(value) if flat else value
    if shifts is None:
        computed = paddle.cast(paddle.flatten(inputs[1]), "int64")
        shifts = [computed[place] for place in range(len(axes or [0]))]
    for shift, axis in zip(shifts, axes or [0], strict=True):
        size = rolled.shape[axis]
        if size < 0 or not isinstance(shift, int):
            length = paddle.shape(rolled)[axis].astype("int64")
            rolled = paddle.index_select(rolled, paddle.remainder(paddle.arange(length) - shift, length), axis)
        elif size and shift % size:
            rolled = paddle.roll(rolled, shift % size, axis)
    return paddle.reshape(rolled, paddle.shape(value)) if flat else rolled


def _round(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    decimals = attributes.get("decimals", 0)
    if not decimals:
        return None
    power = paddle.full([], 10.0 ** abs(decimals), inputs[0].dtype)
    if decimals > 0:
        return paddle.divide(paddle.round(paddle.multiply(inputs[0], power)), power)
    return paddle.multiply(paddle.round(paddle.divide(inputs[0], power)), power)


def _thresholded_relu(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    if not attributes.get("value") and inputs[0].dtype != paddle.float64:
        return None
    other = paddle.full_like(inputs[0], attributes["value"])
    return paddle.where(inputs[0] > attributes["threshold"], inputs[0], other)


def _hardshrink(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """What lies on the threshold is kept; ONNX's Shrink makes it 0."""
    import paddle

    value = inputs[0]
    return paddle.where(paddle.abs(value) < attributes["threshold"], paddle.zeros_like(value), value)


def _truth(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of numbers: Paddle's program says that the result has their element type, which the eager result has not.

    Along what may be empty: counted, as the least number is what engines have for the largest of none.
    """
    import paddle

    value, every = inputs[0], op.name() == "pd_op.all"
    if value.dtype.name != "BOOL":
        raise TraceError(f"{op.name()} of numbers has another element type in a program", "Compare with zero first")
    axes = [axis % value.ndim for axis in attributes["axis"]] or list(range(value.ndim))
    if all(value.shape[axis] > 0 for axis in axes):
        return None
    counted = paddle.cast(paddle.logical_not(value) if every else value, "int64")
    count, none = paddle.sum(counted, axis=axes, keepdim=attributes["keepdim"]), paddle.full([], 0, "int64")
    return count == none if every else count > none


def _cross_entropy(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    if not attributes.get("use_softmax", True):
        raise _refuse(op, "takes probabilities (use_softmax=False)")
    _paddle_softmax.cross_entropy(op, inputs, attributes)


def _layer_norm(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of several dimensions, whose scale the converter hands on flat: of one. In double precision: spelled out."""
    import paddle

    value, scale, bias = inputs
    begin = attributes["begin_norm_axis"]
    if value.dtype != paddle.float64:
        if len(value.shape) - begin == 1:
            return None
        scale, bias = (part if part.initialized() else None for part in (scale, bias))
        rows = paddle.flatten(value, begin)
        made = paddle._C_ops.layer_norm(rows, scale, bias, attributes["epsilon"], begin)
        return paddle.reshape(made[0] if isinstance(made, (list, tuple)) else made, paddle.shape(value))
    axes = list(range(begin, len(value.shape)))
    centred = value - paddle.mean(value, axis=axes, keepdim=True)
    spread = paddle.mean(centred * centred, axis=axes, keepdim=True)
    result = centred * paddle.rsqrt(spread + attributes["epsilon"])
    if scale.initialized():
        result = result * paddle.reshape(scale, value.shape[begin:])
    if bias.initialized():
        result = result + paddle.reshape(bias, value.shape[begin:])
    return result


def _topk(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    if not attributes["sorted"]:
        raise TraceError(f"{op.name()} leaves the order of its result open (sorted=False)", "Ask for a sorted result")


def _dot(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.sum(inputs[0] * inputs[1], axis=-1)


def _linspace(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of one point, or of a number that varies and may be one: the converter divides by one less."""
    import paddle

    start, stop, points = inputs
    if constant(points) not in (None, 1, [1]):
        return None
    kind = op.result(0).dtype
    count = paddle.reshape(points, [])
    if not start.is_floating_point():
        start, stop = paddle.cast(start, "float64"), paddle.cast(stop, "float64")
    step = (stop - start) / paddle.cast(paddle.maximum(count - 1, paddle.full([], 1, count.dtype)), stop.dtype)
    return paddle.cast(start + step * paddle.cast(paddle.arange(count), stop.dtype), kind)


def _repeat_interleave(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Each element as often as a tensor says, which the converter reads where sizes are known only."""
    import paddle

    value, repeats = inputs
    ends = paddle.cumsum(paddle.cast(repeats, "int64"), 0)
    places = paddle.arange(ends[-1])
    passed = paddle.cast(paddle.unsqueeze(places, 1) >= paddle.unsqueeze(ends, 0), "int64")
    return paddle.index_select(value, paddle.sum(passed, axis=1), attributes["axis"])


def _stack(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of vectors of one element, which the converter takes for numbers."""
    import paddle

    given = parts(inputs[0])
    if any(list(value.shape) != [1] for value in given):
        return None
    return paddle.concat([paddle.unsqueeze(value, attributes["axis"]) for value in given], attributes["axis"])


def _transpose(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of the first axes alone, which the converter takes for all, or counted from the end."""
    import paddle

    order, rank = attributes["perm"], len(inputs[0].shape)
    if len(order) == rank and all(axis >= 0 for axis in order):
        return None
    first = [axis % len(order) for axis in order]
    return paddle.transpose(inputs[0], [*first, *range(len(order), rank)])


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "sum": _sum,
    "cumsum": _cumsum,
    "cumsum_": _cumsum,
    "put_along_axis": _put_along_axis,
    "roll": _roll,
    "round": _round,
    "round_": _round,
    "thresholded_relu": _thresholded_relu,
    "thresholded_relu_": _thresholded_relu,
    "hardshrink": _hardshrink,
    "all": _truth,
    "any": _truth,
    "cross_entropy_with_softmax": _cross_entropy,
    "rnn": recurrent,
    "layer_norm": _layer_norm,
    "dot": _dot,
    "repeat_interleave_with_tensor_index": _repeat_interleave,
    "linspace": _linspace,
    "topk": _topk,
    "stack": _stack,
    "transpose": _transpose,
    "transpose_": _transpose,
}
