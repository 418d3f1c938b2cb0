"""Elementwise operators on NumPy arrays, with NumPy's broadcasting, which is ONNX's."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from hybrid_infer.backends.native._call import Call, Table
from hybrid_infer.backends.native._plan import NUMPY


@lru_cache(maxsize=1)
def _erf_table() -> tuple[Any, Any]:
    """erf at steps of 1/16 from -6 to 6, and there the Taylor coefficients of the density, of orders 0 to 8.

    The n-th coefficient of exp(-x*x) obeys ``(n + 1) g[n+1] = -2 (x g[n] + g[n-1])``.
    """
    grid = np.arange(-96, 97) / 16
    series = [np.exp(-grid * grid)]
    for n in range(8):
        before = series[n - 1] if n else np.zeros_like(grid)
        series.append(-2 * (grid * series[n] + before) / (n + 1))
    return np.array([math.erf(x) for x in grid]), np.stack(series) * (2 / math.sqrt(math.pi))


def erf(x: Any) -> Any:
    """The error function, to 1e-15 in float64."""
    wide = np.asarray(x, np.float64)
    near = np.clip(np.nan_to_num(wide), -6, 6)
    place = np.rint(near * 16).astype(np.intp) + 96
    values, series = _erf_table()
    step = near - (place - 96) / 16
    total = np.zeros_like(near)
    for n in reversed(range(len(series))):
        total = total * step + series[n][place] / (n + 1)
    return np.where(np.isnan(wide), np.nan, values[place] + total * step).astype(x.dtype)


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def softplus(x: Any) -> Any:
    return np.logaddexp(x, np.zeros_like(x))


def gelu(x: Any, approximate: str = "none") -> Any:
    """Both of ONNX's forms, in the type of `x`."""
    if approximate == "tanh":
        inner = x * x.dtype.type(math.sqrt(2 / math.pi)) * (1 + x.dtype.type(0.044715) * x * x)
        return x * x.dtype.type(0.5) * (1 + np.tanh(inner))
    return x * x.dtype.type(0.5) * (1 + erf(x * x.dtype.type(math.sqrt(0.5))))


def cast(x: Any, dtype: str) -> Any:
    """`x` as `dtype`; a float beyond an integer type wraps or saturates as C's conversion through int64 does."""
    target = np.dtype(NUMPY[dtype])
    if dtype == "bfloat16":
        return round_bfloat16(x.astype(np.float32))
    if target.kind in "iu" and x.dtype.kind == "f" and target.itemsize < 8:
        return x.astype(np.int64).astype(target)
    return x.astype(target)


def round_bfloat16(x: Any) -> Any:
    """float32 values rounded to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).reshape(np.shape(x)).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), rounded)


def _divide(_: Call, a: Any, b: Any) -> Any:
    if a.dtype.kind not in "iu":
        return a / b
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = a // safe
    inexact = (a - quotient * safe != 0) & ((a < 0) != (safe < 0))
    return (quotient + inexact).astype(a.dtype)  # towards zero


def _mod(call: Call, a: Any, b: Any) -> Any:
    return np.fmod(a, b) if call.get("fmod") else np.mod(a, b)


def _pow(_: Call, a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return np.power(a, b.astype(a.dtype))
    if b.dtype.kind == "f":
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    # Of negative powers only those of one and minus one are integers that are not zero.
    small = np.where(np.abs(a) == 1, np.where(b % 2 == 0, 1, a), 0)
    large = np.power(a.astype(np.int64), np.maximum(b, 0).astype(np.int64)).astype(a.dtype)
    return np.where(b < 0, small, large).astype(a.dtype)


def _clip(call: Call, x: Any, low: Any = None, high: Any = None) -> Any:
    if call.get("only") == "high":  # in a body, where no operand is absent
        low, high = None, low
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _shift(call: Call, a: Any, b: Any) -> Any:
    return np.left_shift(a, b) if call.get("direction") == "LEFT" else np.right_shift(a, b)


def _is_inf(call: Call, x: Any) -> Any:
    positive = np.isposinf(x) & bool(call.get("detect_positive", 1))
    return positive | (np.isneginf(x) & bool(call.get("detect_negative", 1)))


def _elu(call: Call, x: Any) -> Any:
    return np.where(x < 0, _scalar(x, call.get("alpha", 1.0)) * np.expm1(np.minimum(x, 0)), x)


def _selu(call: Call, x: Any) -> Any:
    alpha, gamma = call.get("alpha", 1.6732632423543772), call.get("gamma", 1.0507009873554805)
    return np.where(x > 0, _scalar(x, gamma) * x, _scalar(x, gamma * alpha) * np.expm1(np.minimum(x, 0)))


def _celu(call: Call, x: Any) -> Any:
    alpha = _scalar(x, call.get("alpha", 1.0))
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _leaky_relu(call: Call, x: Any) -> Any:
    return np.where(x < 0, _scalar(x, call.get("alpha", 0.01)) * x, x)


def _hard_sigmoid(call: Call, x: Any) -> Any:
    return np.clip(_scalar(x, call.get("alpha", 0.2)) * x + _scalar(x, call.get("beta", 0.5)), 0, 1).astype(x.dtype)


def _hard_swish(_: Call, x: Any) -> Any:
    return x * np.clip(x * _scalar(x, 1 / 6) + _scalar(x, 0.5), 0, 1).astype(x.dtype)


def _thresholded_relu(call: Call, x: Any) -> Any:
    return np.where(x > _scalar(x, call.get("alpha", 1.0)), x, np.zeros_like(x))


def _shrink(call: Call, x: Any) -> Any:
    bias, edge = call.get("bias", 0.0), call.get("lambd", 0.5)
    low, high = (x.astype(np.float64) + bias).astype(x.dtype), (x.astype(np.float64) - bias).astype(x.dtype)
    return np.where(x < -edge, low, np.where(x > edge, high, np.zeros_like(x)))


def _swish(call: Call, x: Any) -> Any:
    return x * sigmoid(_scalar(x, call.get("alpha", 1.0)) * x)


def _scalar(x: Any, value: float) -> Any:
    return x.dtype.type(value)


def _unary(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda call, x: function(x)


def _binary(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda call, a, b: function(a, b)


def _many(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda call, *operands: reduce(function, operands)


def _round(x: Any) -> Any:
    return np.rint(x)


TABLE: Table = {
    "Add": _binary(np.add), "Sub": _binary(np.subtract), "Mul": _binary(np.multiply), "Div": _divide, "Mod": _mod,
    "Pow": _pow, "And": _binary(np.logical_and), "Or": _binary(np.logical_or), "Xor": _binary(np.logical_xor),
    "Not": _unary(np.logical_not), "BitwiseAnd": _binary(np.bitwise_and), "BitwiseOr": _binary(np.bitwise_or),
    "BitwiseXor": _binary(np.bitwise_xor), "BitwiseNot": _unary(np.invert), "BitShift": _shift,
    "Equal": _binary(np.equal), "Less": _binary(np.less), "LessOrEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater), "GreaterOrEqual": _binary(np.greater_equal),
    "Max": _many(np.maximum), "Min": _many(np.minimum), "Sum": _many(np.add),
    "Mean": lambda call, *xs: (reduce(np.add, xs) / _scalar(xs[0], len(xs))).astype(xs[0].dtype),
    "Where": lambda call, c, a, b: np.where(c, a, b),
    "Abs": _unary(np.abs), "Neg": _unary(np.negative), "Sign": _unary(np.sign), "Ceil": _unary(np.ceil),
    "Floor": _unary(np.floor), "Round": _unary(_round), "Sqrt": _unary(np.sqrt), "Exp": _unary(np.exp),
    "Log": _unary(np.log), "Reciprocal": _unary(lambda x: (1 / x).astype(x.dtype)), "Erf": _unary(erf),
    "Sin": _unary(np.sin), "Cos": _unary(np.cos), "Tan": _unary(np.tan), "Asin": _unary(np.arcsin),
    "Acos": _unary(np.arccos), "Atan": _unary(np.arctan), "Sinh": _unary(np.sinh), "Cosh": _unary(np.cosh),
    "Tanh": _unary(np.tanh), "Asinh": _unary(np.arcsinh), "Acosh": _unary(np.arccosh), "Atanh": _unary(np.arctanh),
    "IsNaN": _unary(np.isnan), "IsInf": _is_inf, "Relu": _unary(lambda x: np.maximum(x, 0)),
    "Sigmoid": _unary(sigmoid), "Softplus": _unary(softplus), "Softsign": _unary(lambda x: x / (1 + np.abs(x))),
    "Elu": _elu, "Selu": _selu, "Celu": _celu, "LeakyRelu": _leaky_relu, "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish, "ThresholdedRelu": _thresholded_relu, "Shrink": _shrink, "Swish": _swish,
    "Mish": _unary(lambda x: x * np.tanh(softplus(x))), "PRelu": lambda call, x, slope: np.where(x < 0, slope * x, x),
    "Gelu": lambda call, x: gelu(x, call.get("approximate", "none")), "Clip": _clip,
    "Cast": lambda call, x: cast(x, call.get("to")), "Identity": lambda call, x: x,
    # Of two values of one dtype; bfloat16 reaches this as float32, and the interpreter rounds the result.
    "CastLike": lambda call, x, like: cast(x, like.dtype.name),
}  # fmt: skip
