"""Whole numbers, and float64, of which paddle2onnx would compute in types that do not hold them.

It bounds, raises to powers and averages int64 in float32, and looks for the place of the largest int64 among int32
numbers, of the largest float64 among float32 ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_windows import constant

_MOST_POWER = 64
_EXACT = 2**24  # up to which float32 holds every whole number


_INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8")


def is_whole(value: Any) -> bool:
    return any(value.dtype.name == name for name in _INTEGERS)


def _is_wide(value: Any) -> bool:
    return value.dtype.name in ("INT32", "INT64")


def _clip(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """With bounds that the program holds in float32, so that only small ones are known to be what was given."""
    import paddle

    value, bounds = inputs[0], inputs[1:3]
    if not _is_wide(value):
        return None
    # What Paddle takes where no bound is given: the ends of the type, or just within.
    bits, short = (31, 7) if value.dtype == paddle.int32 else (63, 39)
    ends = (-(2**bits), -(2**bits) + 2**short, 2**bits - 1 - 2**short, 2**bits - 1)
    unbound = {float(np.float32(end)): end for end in ends}
    found = value
    for given, choose in zip(bounds, (paddle.maximum, paddle.minimum), strict=True):
        bound = constant(given)
        if bound is None:
            found = choose(found, paddle.cast(given, value.dtype))
            continue
        exact = unbound.get(bound, bound)
        if exact is bound and abs(bound) >= _EXACT:
            raise TraceError(f"paddle2onnx bounds whole numbers by {bound:g} in float32")
        found = choose(found, paddle.full([], int(exact), value.dtype))
    return found


def _scale(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of integers: floats lose digits, and stop at the limits of the type. Of float64: they lose digits. Scalars become
    vectors of one element.

    The program holds the numbers in float32. What these lack, the comparison with eager finds.
    """
    import paddle

    value, factor, bias = inputs[0], constant(inputs[1]), attributes["bias"]
    whole, scalar = is_whole(value), value.dtype == paddle.float32 and not value.shape
    if not whole and not scalar and value.dtype != paddle.float64:
        return None

    def number(given: float) -> Any:
        return paddle.full([], int(given) if whole else given, value.dtype)

    scale = paddle.cast(inputs[1], value.dtype) if factor is None else number(factor)
    if attributes["bias_after_scale"]:
        return paddle.multiply(value, scale) if not bias else paddle.multiply(value, scale) + number(bias)
    return paddle.multiply(paddle.add(value, number(bias)), scale)


def _pow(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """By squares."""
    import paddle

    value, exponent = inputs[0], float(attributes["y"])
    if not _is_wide(value):
        return None
    if not exponent.is_integer() or not 0 <= exponent <= _MOST_POWER:
        raise TraceError(f"paddle2onnx raises whole numbers to the power of {exponent:g} in float32")
    rest, square, found = int(exponent), value, None
    while rest:
        if rest & 1:
            found = square if found is None else found * square
        rest >>= 1
        if rest:
            square = square * square
    if found is None:
        nothing, one = (paddle.full([], number, value.dtype) for number in (0, 1))
        return value * nothing + one
    return paddle.assign(found) if found is value else found


def _place(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The first of those that are equal to the largest, or least."""
    import paddle

    value, axis = inputs[0], constant(inputs[1])
    if value.dtype == paddle.float64:
        raise TraceError("paddle2onnx looks for the place of a float64 number among float32 ones")
    if value.dtype != paddle.int64 or axis is None or not value.shape:
        return None
    rank, largest = len(value.shape), op.name().endswith("argmax")
    along, flat = (0, paddle.reshape(value, [-1])) if attributes["flatten"] else (int(axis) % rank, value)
    extreme = (paddle.max if largest else paddle.min)(flat, axis=along, keepdim=True)
    kept, dtype = attributes["keepdims"], op.result(0).dtype
    found = paddle.argmax(paddle.cast(flat == extreme, "int32"), axis=along, keepdim=kept)
    if attributes["flatten"] and kept:
        found = paddle.reshape(found, [1] * rank)
    return found if dtype == paddle.int64 else paddle.cast(found, dtype)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "argmax": _place,
    "argmin": _place,
    "clip": _clip,
    "pow": _pow,
    "scale": _scale,
    "scale_": _scale,
}


def refuse_mean(value: Any) -> None:
    """Raises TraceError for means of whole numbers, which no engine takes in the order in which Paddle does."""
    if _is_wide(value):
        raise TraceError("paddle2onnx does not round the mean of whole numbers as Paddle does", "Cast them to float32")
