"""Whole numbers, and float64, of which paddle2onnx would compute in types that do not hold them.

It bounds, raises to powers and averages int64 in float32, and looks for the place of the largest int64 among int32
numbers, of the largest float64 among float32 ones. It bounds, averages, turns and raises to powers float64 in float32,
and adds several tensors at once in it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_recurrent import parts
from hybrid_infer.frontends._paddle_windows import constant, lengths

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
    if value.dtype == paddle.float64:
        low, high = (_as_double(each) for each in bounds)
        return paddle.minimum(paddle.maximum(value, low), high)
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
        if exact in (ends[0], ends[-1]):
            continue  # which the converter does not hold either
        if exact is bound and abs(bound) >= _EXACT:
            raise TraceError(f"paddle2onnx bounds whole numbers by {bound:g} in float32")
        found = choose(found, paddle.full([], int(exact), value.dtype))
    return paddle.assign(value) if found is value else found


def _as_double(bound: Any) -> Any:
    """The ends of the type are infinite in the single precision of the program."""
    import paddle

    known, most = constant(bound), sys.float_info.max
    if known is None:
        return paddle.cast(bound, "float64")
    return paddle.full([], min(max(known, -most), most), "float64")


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

    if any(known is not None and math.isinf(known) for known in (factor, bias)) and value.dtype == paddle.float64:
        raise TraceError("the program holds a number beside float64 in single precision, in which it is infinite")

    def number(given: float) -> Any:
        return paddle.full([], int(given) if whole else given, value.dtype)

    scale = paddle.cast(inputs[1], value.dtype) if factor is None else number(factor)
    if attributes["bias_after_scale"]:
        return paddle.multiply(value, scale) if not bias else paddle.multiply(value, scale) + number(bias)
    return paddle.multiply(paddle.add(value, number(bias)), scale)


def _pow(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """By squares; of float64, by an exponent of that type."""
    import paddle

    value, exponent = inputs[0], float(attributes["y"])
    if value.dtype == paddle.float64:
        return paddle.pow(value, paddle.full([], exponent, "float64"))
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


def _add_n(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter adds all of them in float32."""
    import paddle

    given = parts(inputs[0])
    if given[0].dtype == paddle.float32:
        return None
    return reduce(paddle.add, given) if len(given) > 1 else paddle.assign(given[0])


def _matmul(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of float64: the converter turns one of the two in float32."""
    import paddle

    turned = attributes["transpose_x"], attributes["transpose_y"]
    if inputs[0].dtype != paddle.float64 or not any(turned):
        return None
    pairs = zip(inputs, turned, strict=True)
    return paddle.matmul(*(_turned(value) if turn and value.ndim > 1 else value for value, turn in pairs))


def _relu6(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value = inputs[0]
    if value.dtype != paddle.float64:
        return None
    return paddle.minimum(paddle.maximum(value, paddle.full([], 0, "float64")), paddle.full([], 6, "float64"))


def _turned(value: Any) -> Any:
    import paddle

    return paddle.transpose(value, [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2])


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "add_n": _add_n,
    "matmul": _matmul,
    "argmax": _place,
    "argmin": _place,
    "clip": _clip,
    "relu6": _relu6,
    "pow": _pow,
    "scale": _scale,
    "scale_": _scale,
}


def mean_of_doubles(value: Any, axes: Sequence[int], keep: bool) -> Any:
    import paddle

    sizes = lengths(value)
    count = paddle.full([], math.prod(n for axis in axes if isinstance(n := sizes[axis], int)), "float64")
    for axis in axes:
        if not isinstance(sizes[axis], int):
            count = paddle.multiply(count, paddle.cast(sizes[axis], "float64"))
    return paddle.divide(paddle.sum(value, axis=list(axes), keepdim=keep), count)


def refuse_mean(value: Any) -> None:
    """Raises TraceError for means of whole numbers, which no engine takes in the order in which Paddle does."""
    if _is_wide(value):
        raise TraceError("paddle2onnx does not round the mean of whole numbers as Paddle does", "Cast them to float32")
