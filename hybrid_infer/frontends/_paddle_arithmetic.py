"""Functions of single numbers, and comparisons, that paddle2onnx lacks, written out in operators that it has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_terms import CLOSE, alike, is_float, log1p, negative, number, unless
from hybrid_infer.frontends._paddle_windows import constant

_SUMS = 256  # that are written out one after the other
_LARGE = 1e9  # from which on the square of a number is all that counts beside 1


def _is_signed(value: Any) -> bool:
    return value.dtype.name in ("FLOAT32", "FLOAT64", "INT32", "INT64")


def _equal(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of fractions, those too that are hardly apart: none but themselves of numbers with digits enough before these."""
    import paddle

    value, other = inputs
    known, kind = constant(other), value.dtype
    if not is_float(value) or kind != other.dtype or (known is not None and _stands_apart(known, kind)):
        return None
    found = paddle.abs(value) < number(CLOSE, value) if known == 0.0 and not other.shape else alike(value, other)
    return found if op.name() == "pd_op.equal" else paddle.logical_not(found)


def _stands_apart(given: float, dtype: Any) -> bool:
    """Is no other number of the element type closer than what Paddle takes for no difference?"""
    size = np.abs(np.array(given, "float32" if dtype.name == "FLOAT32" else "float64"))
    return not np.isfinite(size) or bool(size - np.nextafter(size, size.dtype.type(0)) >= CLOSE)


def _extreme(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The larger or the smaller of two numbers, or the one that is a number; the second of equal ones.

    Paddle makes fractions of whole numbers, which lose digits.
    """
    import paddle

    value, other = inputs
    if not _is_signed(value):
        return None
    if not is_float(value):
        wide = "float32" if value.dtype == paddle.int32 else "float64"
        value, other = (paddle.cast(each, wide) for each in inputs)
    first = value > other if op.name() == "pd_op.fmax" else value < other
    if is_float(value):
        # To OpenVINO, what is no number is more than any.
        first = paddle.logical_and(first, paddle.logical_not(paddle.isnan(value)))
        first = paddle.logical_or(first, paddle.isnan(other))
    return paddle.cast(paddle.where(first, value, other), op.result(0).dtype)


def _heaviside(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, at_zero = inputs
    if not _is_signed(value):
        return None
    zero, one = number(0, value), number(1, value)
    above = value > zero
    if is_float(value):
        above = paddle.logical_and(above, paddle.logical_not(paddle.isnan(value)))  # which is more than any to OpenVINO
    return paddle.where(value == zero, at_zero, paddle.where(above, one, zero))


def _copysign(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The sign of what is no number is in its bits, which no operator of ONNX tells: an engine refuses such calls.

    By a product: of zeros, ONNX Runtime's choice between numbers loses the sign.
    """
    import paddle

    value, signs = inputs
    if not _is_signed(value):
        return None
    zero, one = number(0, signs), number(1, value)
    below = signs < zero
    if is_float(value):
        below = paddle.logical_or(below, paddle.logical_and(signs == zero, paddle.reciprocal(signs) < zero))
    found = paddle.abs(value) * paddle.where(below, negative(one), one)
    return unless(paddle.isnan(signs), found) if is_float(value) else found


def _logit(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The logarithm of odds; NaN of what is no probability, unless it is kept away from 0 and 1."""
    import paddle

    value, edge = inputs[0], attributes["eps"]
    if not is_float(value):
        return None
    one = number(1, value)
    if edge:
        low, given = number(edge, value), value
        value = paddle.where(value < low, low, paddle.where(value > one - low, one - low, value))
        value = paddle.where(paddle.isnan(given), given, value)
    return paddle.log(value / (one - value))


def _close(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """As far apart as is allowed, and a little more. What is allowed is computed in double precision and rounded."""
    import paddle

    value, other, *given = inputs
    allowed = [constant(each) for each in given]
    if not is_float(value) or None in allowed or list(value.shape) != list(other.shape):
        return None
    relative, absolute = (paddle.full([], each, "float64") for each in allowed)
    wide = paddle.multiply(paddle.abs(paddle.cast(other, "float64")), relative)
    right = paddle.cast(paddle.add(wide, absolute), value.dtype)
    left = paddle.abs(value - other)
    beside = paddle.cast(paddle.abs(left - right), "float64") <= paddle.full([], CLOSE, "float64")
    found = paddle.logical_or(paddle.logical_or(value == other, left <= right), beside)
    if attributes["equal_nan"]:
        found = paddle.logical_or(found, paddle.logical_and(paddle.isnan(value), paddle.isnan(other)))
    if op.name() == "pd_op.isclose":
        return found
    apart = paddle.cast(paddle.logical_not(found), "int64")
    return paddle.sum(apart, axis=list(range(value.ndim))) == paddle.full([], 0, "int64")


def _asinh(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """By what the argument of the logarithm has above 1, so that small numbers keep their digits."""
    import paddle

    value = paddle.cast(inputs[0], op.result(0).dtype)
    size, one, edge = paddle.abs(value), number(1, value), number(_LARGE, value)
    small = paddle.minimum(size, edge)
    square = small * small
    found = log1p(small + square / (one + paddle.sqrt(square + one)))
    found = paddle.where(size > edge, paddle.log(size) + number(math.log(2), value), found)
    zero = number(0, value)
    return paddle.where(value == zero, value, paddle.where(value < zero, negative(found), found))


def _acosh(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value = paddle.cast(inputs[0], op.result(0).dtype)
    one, edge, endless = number(1, value), number(_LARGE, value), number(math.inf, value)
    above = paddle.minimum(value, edge) - one
    found = log1p(above + paddle.sqrt(above * (above + number(2, value))))
    found = paddle.where(value > edge, paddle.log(value) + number(math.log(2), value), found)
    return paddle.where(value < one, endless - endless, found)


def _atanh(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value = paddle.cast(inputs[0], op.result(0).dtype)
    size, zero = paddle.abs(value), number(0, value)
    found = log1p(size * number(2, value) / (number(1, value) - size)) * number(0.5, value)
    return paddle.where(value == zero, value, paddle.where(value < zero, negative(found), found))


def _shift(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """By products with, and quotients by, powers of two. By more places than there are, all bits leave."""
    import numpy as np
    import paddle

    value, places = inputs
    left = op.name() == "pd_op.bitwise_left_shift"
    if value.dtype.name not in ("INT32", "INT64") or not (left or attributes["is_arithmetic"]):
        return None
    bits = 32 if value.dtype == paddle.int32 else 64
    known = bits if left else bits - 1
    zero, one = number(0, value), number(1, value)
    within = paddle.logical_and(places >= number(0, places), places < number(known, places))
    place = paddle.where(within, places, number(known, places))
    # The last power of all is the least number; behind it stands what no bit is left of.
    powers = [2**n if n < bits - 1 else -(2**n) for n in range(known)] + [0 if left else 1]
    table = paddle.assign(np.array(powers, "int64"))
    factor = paddle.gather(paddle.cast(table, value.dtype), paddle.reshape(place, [-1]))
    factor = paddle.reshape(factor, paddle.shape(place) if -1 in place.shape else list(place.shape))
    if left:
        return value * factor
    gone = paddle.where(value < zero, negative(one), zero)
    return paddle.where(within, paddle.floor_divide(value, factor), gone)


def _angle(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of real numbers: half a turn for those below 0."""
    import paddle

    value = inputs[0]
    if not is_float(value):
        return None
    found = paddle.where(value < number(0, value), number(math.pi, value), number(0, value))
    return paddle.where(paddle.isnan(value), value, found)


def _logcumsumexp(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """One sum after the other, each by what its parts are above the larger of them.

    Of what is not finite, Paddle makes the least number of its type, or passes it over: an engine refuses such calls.
    """
    import paddle

    value = inputs[0]
    if attributes["exclusive"] or attributes["reverse"] or not is_float(value) or not value.shape:
        return None
    value = paddle.flatten(value) if attributes["flatten"] else value
    axis = 0 if attributes["flatten"] else attributes["axis"] % value.ndim
    size = value.shape[axis]
    if not 0 < size <= _SUMS:
        raise TraceError(f"{op.name()} along a dimension that varies, or of more than {_SUMS}")
    parts = paddle.split(value, size, axis) if size > 1 else [value]
    for n in range(1, size):
        before, here = parts[n - 1], parts[n]
        parts[n] = paddle.maximum(before, here) + log1p(paddle.exp(negative(paddle.abs(before - here))))
    found = paddle.concat(parts, axis) if size > 1 else value
    return unless(paddle.logical_not(paddle.isfinite(value)), found)


def _conj(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of real numbers, themselves."""
    import paddle

    return paddle.assign(inputs[0]) if _is_signed(inputs[0]) else None


def _rrelu(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """With the slope in the middle, where none is drawn."""
    import paddle

    value = inputs[0]
    if not attributes["is_test"] or not op.result(1).use_empty():
        return None
    slope = number((attributes["lower"] + attributes["upper"]) / 2, value)
    return paddle.where(value < number(0, value), value * slope, value)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "equal": _equal,
    "not_equal": _equal,
    "fmax": _extreme,
    "fmin": _extreme,
    "heaviside": _heaviside,
    "copysign": _copysign,
    "logit": _logit,
    "isclose": _close,
    "allclose": _close,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "bitwise_left_shift": _shift,
    "bitwise_right_shift": _shift,
    "angle": _angle,
    "logcumsumexp": _logcumsumexp,
    "conj": _conj,
    "rrelu": _rrelu,
}
