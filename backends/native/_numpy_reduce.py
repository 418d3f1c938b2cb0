"""Reductions, scans, sorting, products and normalisations. Sums of narrow floats are taken in float32 or wider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_infer.backends.native._call import Call, Table


def wide(x: Any) -> Any:
    """`x` in the type in which sums are taken."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _axes(call: Call, x: Any, axes: Any) -> tuple[int, ...] | None:
    """The axes to reduce; None where there is nothing to do."""
    if axes is None or not len(axes):
        return None if call.get("noop_with_empty_axes") else tuple(range(x.ndim))
    return tuple(int(axis) % x.ndim for axis in axes)


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(call: Call, x: Any, axes: Any = None) -> Any:
        over = _axes(call, x, axes)
        if over is None:
            return x
        return np.asarray(function(wide(x), axis=over, keepdims=bool(call.get("keepdims", 1)))).astype(x.dtype)

    return reduce


def _extreme(function: Any, floor: bool) -> Callable[..., Any]:
    """Of nothing, the identity of the operation."""

    def extreme(x: Any, axis: Any, keepdims: bool) -> Any:
        if x.dtype == np.bool_:
            start: Any = not floor
        elif x.dtype.kind == "f":
            start = -np.inf if floor else np.inf
        else:
            limits = np.iinfo(x.dtype)
            start = limits.min if floor else limits.max
        return function(x, axis=axis, keepdims=keepdims, initial=start)

    return extreme


def _logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf) if x.dtype.kind == "f" else 0
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis)


def _arg(function: Any) -> Callable[..., Any]:
    def arg(call: Call, x: Any) -> Any:
        axis, keep = call.get("axis", 0) % max(x.ndim, 1), bool(call.get("keepdims", 1))
        if not call.get("select_last_index"):
            return function(x, axis=axis, keepdims=keep).astype(np.int64)
        return (x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=keep)).astype(np.int64)

    return arg


def softmax(x: Any, axis: int) -> Any:
    """A row of nothing but -inf gives NaN, as in the frameworks."""
    x = wide(x)
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax(x: Any, axis: int) -> Any:
    x = wide(x)
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _hardmax(call: Call, x: Any) -> Any:
    axis = call.get("axis", -1)
    first = np.argmax(x, axis=axis, keepdims=True)
    result = np.zeros_like(x)
    np.put_along_axis(result, first, 1, axis)
    return result


def _cumsum(call: Call, x: Any, axis: Any) -> Any:
    along, backwards = int(np.reshape(axis, -1)[0]), call.get("reverse")
    x = np.flip(x, along) if backwards else x
    total = np.cumsum(wide(x), axis=along)
    if call.get("exclusive") and x.shape[along]:  # up to the place before
        before = np.roll(total, 1, along)
        np.moveaxis(before, along, 0)[0] = 0
        total = before
    total = total.astype(x.dtype)
    return np.flip(total, along) if backwards else total


def _top_k(call: Call, x: Any, k: Any) -> Any:
    axis, count = call.get("axis", -1), int(np.reshape(k, -1)[0])
    if call.get("largest", 1):
        # Stable, and NaN above all, as in the frameworks: sort the reversed array upwards, then turn it round.
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    places = np.take(order, np.arange(count), axis)
    return np.take_along_axis(x, places, axis), places.astype(np.int64)


def _matmul(_: Call, a: Any, b: Any) -> Any:
    return np.matmul(wide(a), wide(b)).astype(a.dtype)


def _gemm(call: Call, a: Any, b: Any, c: Any = None) -> Any:
    left, right = wide(a.T if call.get("transA") else a), wide(b.T if call.get("transB") else b)
    total = left @ right
    if (alpha := call.get("alpha", 1.0)) != 1:
        total = total * total.dtype.type(alpha)
    if c is not None:
        total = total + (wide(c) if call.get("beta", 1.0) == 1 else wide(c) * total.dtype.type(call.get("beta")))
    return total.astype(a.dtype)


def _einsum(call: Call, *operands: Any) -> Any:
    text = call.get("equation").replace(" ", "")
    return np.einsum(text, *(wide(x) for x in operands)).astype(operands[0].dtype)


def standardise(x: Any, axes: tuple[int, ...], epsilon: float, centre: bool = True) -> tuple[Any, Any, Any]:
    """`x` with mean 0 (if `centre`) and mean square 1 along `axes`; with the mean and the inverse deviation."""
    x = wide(x)
    mean = np.mean(x, axis=axes, keepdims=True) if centre else np.zeros((1,) * x.ndim, x.dtype)
    variance = np.mean(np.square(x - mean), axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(variance + x.dtype.type(epsilon))
    return (x - mean) * inverse, mean, inverse


def _layer_norm(call: Call, x: Any, scale: Any = None, bias: Any = None) -> Any:
    axes = tuple(range(call.get("axis", -1) % x.ndim, x.ndim))
    y, mean, inverse = standardise(x, axes, call.get("epsilon", 1e-5))
    y = y if scale is None else y * wide(scale)
    y = (y if bias is None else y + wide(bias)).astype(x.dtype)
    return [y, mean, inverse][: call.count]


def _rms_norm(call: Call, x: Any, scale: Any = None) -> Any:
    axes = tuple(range(call.get("axis", -1) % x.ndim, x.ndim))
    y = standardise(x, axes, call.get("epsilon", 1e-5), centre=False)[0]
    return (y if scale is None else y * wide(scale)).astype(x.dtype)


def _by_channel(x: Any, rank: int) -> Any:
    return wide(x).reshape(1, -1, *[1] * (rank - 2))


def _instance_norm(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    y, _, _ = standardise(x, tuple(range(2, x.ndim)), call.get("epsilon", 1e-5))
    return (y * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)).astype(x.dtype)


def _group_norm(call: Call, x: Any, scale: Any, bias: Any) -> Any:
    groups = call.get("num_groups")
    apart = x.reshape(x.shape[0], groups, -1)
    y = standardise(apart, (2,), call.get("epsilon", 1e-5))[0]
    if call.get("per_group"):  # opset 18 to 20
        return (y * scale.reshape(1, -1, 1) + bias.reshape(1, -1, 1)).astype(x.dtype).reshape(x.shape)
    return (y.reshape(x.shape) * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)).astype(x.dtype)


def _batch_norm(call: Call, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    rank = 1 if call.get("channels_last") else max(x.ndim, 2)
    inverse = 1 / np.sqrt(_by_channel(variance, rank) + np.float32(call.get("epsilon", 1e-5)))
    y = (wide(x) - _by_channel(mean, rank)) * (inverse * _by_channel(scale, rank)) + _by_channel(bias, rank)
    return y.astype(x.dtype)


def _lp_norm(call: Call, x: Any) -> Any:
    order = np.abs(x) if call.get("p", 2) == 1 else np.square(x)
    total = np.sum(wide(order), axis=call.get("axis", -1), keepdims=True)
    total = total if call.get("p", 2) == 1 else np.sqrt(total)
    return (x / np.where(total == 0, 1, total)).astype(x.dtype)


TABLE: Table = {
    "ReduceSum": _reduction(np.sum), "ReduceMean": _reduction(np.mean), "ReduceProd": _reduction(np.prod),
    "ReduceMax": _reduction(_extreme(np.max, True)), "ReduceMin": _reduction(_extreme(np.min, False)),
    "ReduceL1": _reduction(lambda x, **how: np.sum(np.abs(x), **how)),
    "ReduceL2": _reduction(lambda x, **how: np.sqrt(np.sum(np.square(x), **how))),
    "ReduceSumSquare": _reduction(lambda x, **how: np.sum(np.square(x), **how)),
    "ReduceLogSum": _reduction(lambda x, **how: np.log(np.sum(x, **how))),
    "ReduceLogSumExp": _reduction(_logsumexp), "ArgMax": _arg(np.argmax), "ArgMin": _arg(np.argmin),
    "Softmax": lambda call, x: softmax(x, call.get("axis", -1)).astype(x.dtype),
    "LogSoftmax": lambda call, x: log_softmax(x, call.get("axis", -1)).astype(x.dtype),
    "Hardmax": _hardmax, "CumSum": _cumsum, "TopK": _top_k, "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum,
    "LayerNormalization": _layer_norm, "RMSNormalization": _rms_norm, "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm, "BatchNormalization": _batch_norm, "LpNormalization": _lp_norm,
}  # fmt: skip
