"""What depends on the order of numbers: the one at a given rank, medians, and the largest or smallest so far.

paddle2onnx lacks these. What is no number counts as the largest, as it does in Paddle; engines sort it otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_terms import is_float, number

_SO_FAR = 256  # numbers that are compared one with the next


def _sorted(value: Any, count: Any) -> Any:
    """The smallest numbers along the last axis, in order; for those that are none, infinity."""
    import paddle

    return paddle.topk(value, count, axis=-1, largest=False, sorted=True)[0]


def _kthvalue(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Where it lies is left to eager code: of equal ones, engines and Paddle find others."""
    import paddle

    value, rank = inputs[0], attributes["k"]
    if not op.result(1).use_empty() or value.dtype.name not in ("FLOAT32", "FLOAT64", "INT32", "INT64"):
        return None
    if not value.shape:
        return paddle.assign(value)
    axis = attributes["axis"] % value.ndim
    last = _last(value, axis)
    found = _at(last, rank)
    return paddle.unsqueeze(found, axis) if attributes["keepdim"] else found


def _last(value: Any, axis: int) -> Any:
    import paddle

    if axis == value.ndim - 1:
        return value
    return paddle.transpose(value, [*(each for each in range(value.ndim) if each != axis), axis])


def _at(value: Any, rank: int) -> Any:
    """The number of a rank, counted from 1, along the last axis."""
    import paddle

    if not is_float(value):
        return _sorted(value, rank)[..., rank - 1]
    nan = paddle.isnan(value)
    endless = number(math.inf, value)
    found = _sorted(paddle.where(nan, endless, value), rank)[..., rank - 1]
    # So many are numbers; behind them all stand those that are not.
    known = paddle.sum(paddle.cast(paddle.logical_not(nan), "int64"), axis=-1)
    return paddle.where(known < paddle.full([], rank, "int64"), endless - endless, found)


def _median(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The one in the middle, or the mean of both; no number where one is none."""
    import paddle

    value, keep = inputs[0], attributes["keepdim"]
    if attributes["mode"] != "avg" or not op.result(1).use_empty() or not is_float(value) or not value.shape:
        return None
    axes = [axis % value.ndim for axis in attributes["axis"]] or list(range(value.ndim))
    if any(value.shape[axis] == 0 for axis in axes):
        return None
    varies = any(value.shape[axis] < 0 for axis in axes)
    size = math.prod(value.shape[axis] for axis in axes)
    kept = [axis for axis in range(value.ndim) if axis not in axes]
    flat = paddle.flatten(paddle.transpose(value, [*kept, *axes]), len(kept), -1) if len(axes) > 1 else None
    last = _last(value, axes[0]) if flat is None else flat
    if varies:
        size = paddle.cast(paddle.shape(last)[-1], "int64")
    if op.name() == "pd_op.nanmedian":
        found = _middle_of_numbers(last, size)
    else:
        found = _middle_of_any(last, size) if varies else _middle(last, size)
    if not keep:
        return found
    return paddle.unsqueeze(found, sorted(axes)) if kept else paddle.reshape(found, [1] * value.ndim)


def _middle(last: Any, size: int) -> Any:
    import paddle

    endless, nan = number(math.inf, last), paddle.isnan(last)
    ranked = _sorted(paddle.where(nan, endless, last), size // 2 + 1)
    found = ranked[..., size // 2]
    if size % 2 == 0:
        found = (ranked[..., size // 2 - 1] + found) / number(2, last)
    gone = paddle.sum(paddle.cast(nan, "int64"), axis=-1) > paddle.full([], 0, "int64")
    return paddle.where(gone, endless - endless, found)


def _middle_of_any(last: Any, size: Any) -> Any:
    """Of a size that varies. Of none at all, an engine is asked for one."""
    import paddle

    endless, nan = number(math.inf, last), paddle.isnan(last)
    half = paddle.floor_divide(size, paddle.full([], 2, "int64"))
    ranked = _sorted(paddle.where(nan, endless, last), half + 1)
    high, low = (
        paddle.squeeze(paddle.index_select(ranked, paddle.reshape(place, [1]), -1), [-1])
        for place in (half, paddle.floor_divide(size - 1, paddle.full([], 2, "int64")))
    )
    odd = paddle.remainder(size, paddle.full([], 2, "int64")) == paddle.full([], 1, "int64")
    found = paddle.where(odd, high, (low + high) / number(2, last))
    gone = paddle.sum(paddle.cast(nan, "int64"), axis=-1) > paddle.full([], 0, "int64")
    return paddle.where(gone, endless - endless, found)


def _middle_of_numbers(last: Any, size: Any) -> Any:
    """Of as many numbers as there are."""
    import paddle

    endless, nan, one, two = number(math.inf, last), paddle.isnan(last), *(paddle.full([], n, "int64") for n in (1, 2))
    ranked = _sorted(paddle.where(nan, endless, last), size)
    known = paddle.sum(paddle.cast(paddle.logical_not(nan), "int64"), axis=-1, keepdim=True)
    high = paddle.floor_divide(known, two)
    low = paddle.floor_divide(paddle.maximum(known, one) - one, two)
    end = paddle.full([], size - 1, "int64") if isinstance(size, int) else size - 1
    both = [
        paddle.squeeze(paddle.take_along_axis(ranked, place, -1, broadcast=False), [-1])
        for place in (low, paddle.minimum(high, end))
    ]
    mean, none = (both[0] + both[1]) / number(2, last), paddle.squeeze(known, [-1]) < one
    return paddle.where(none, endless - endless, mean)


def _so_far(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """One after the other; the last one of equal ones, and what is no number, stands for all that came before."""
    import paddle

    value = inputs[0]
    if value.dtype.name not in ("FLOAT32", "FLOAT64", "INT32", "INT64") or not value.shape:
        return None
    axis, largest = attributes["axis"] % value.ndim, op.name() == "pd_op.cummax"
    size, kind = value.shape[axis], op.result(1).dtype
    if not 0 < size <= _SO_FAR:
        raise TraceError(f"{op.name()} along a dimension that varies, or of more than {_SO_FAR}")
    parts = paddle.split(value, size, axis) if size > 1 else [value]
    places = [paddle.zeros_like(paddle.cast(parts[0], "int64"))]
    for n in range(1, size):
        before, here = parts[n - 1], parts[n]
        taken = here >= before if largest else here <= before
        if is_float(value):
            # To OpenVINO, what is no number is more than any, and less.
            taken = paddle.logical_and(taken, paddle.logical_not(paddle.isnan(before)))
            taken = paddle.logical_or(taken, paddle.isnan(here))
        parts[n] = paddle.where(taken, here, before)
        places.append(paddle.where(taken, paddle.full([], n, "int64"), places[-1]))
    if not op.result(1).use_empty():
        found = paddle.concat(places, axis) if size > 1 else places[0]
        op.result(1).replace_all_uses_with(paddle.cast(found, kind) if kind != paddle.int64 else found)
    return paddle.concat(parts, axis) if size > 1 else paddle.assign(value)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "kthvalue": _kthvalue,
    "median": _median,
    "nanmedian": _median,
    "cummax": _so_far,
    "cummin": _so_far,
}
