"""Numbers of Python beside whole numbers and float64: with all of their digits, as eagerly.

The framework's programs hold those that a tensor is multiplied with, or that are added to it, in single precision, and
whole ones above 2**53 in double precision. What single precision does not hold is an operand of the tensor's own type.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced

#: Up to it float64 holds every whole number.
HELD = 2**53


@contextmanager
def with_all_digits() -> Iterator[None]:
    """While operators are written into a program on this thread."""
    import paddle

    with ExitStack() as stack:
        stack.enter_context(replaced(paddle._C_ops, "scale", _scale))
        stack.enter_context(replaced(paddle._C_ops, "clip", _clip))
        stack.enter_context(replaced(paddle._C_ops, "full_like", _full_like))
        stack.enter_context(replaced(paddle._C_ops, "full_batch_size_like", _full_batch_size_like))
        stack.enter_context(replaced(paddle._C_ops, "pad", _pad))
        yield


@contextmanager
def none_rounded() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    with replaced(paddle._C_ops, "full", _full):
        yield


def _scale(
    operator: Callable[..., Any], value: Any, scale: Any = 1.0, bias: float = 0.0, bias_after_scale: bool = True,
    *rest: Any, **named: Any,
) -> Any:  # fmt: skip
    import paddle

    if not any(_lost(each, value) for each in (scale, bias)):
        return operator(value, scale, bias, bias_after_scale, *rest, **named)
    factor = paddle.cast(scale, value.dtype) if isinstance(scale, paddle.pir.Value) else _operand(scale, value)
    if not bias_after_scale:
        return paddle.multiply(paddle.add(value, _operand(bias, value)), factor)
    scaled = value if scale == 1 else paddle.multiply(value, factor)
    return paddle.add(scaled, _operand(bias, value)) if bias else scaled


def _clip(
    operator: Callable[..., Any], value: Any, low: Any = None, high: Any = None, *rest: Any, **named: Any
) -> Any:
    """With bounds that are not the ends of the type, as the framework gives them where one is left out."""
    import paddle

    ends = (-(2**31), 2**31 - 1) if value.dtype == paddle.int32 else (-(2**63), 2**63 - 1)
    kept = [low, high]
    for place, choose in enumerate((paddle.maximum, paddle.minimum)):
        if _lost(kept[place], value) and (abs(kept[place]) <= HELD or value.dtype == paddle.float64):
            value = choose(value, _operand(kept[place], value))
            kept[place] = ends[place] if value.dtype != paddle.float64 else (-math.inf, math.inf)[place]
    return operator(value, *kept, *rest, **named)


def _lost(number: Any, beside: Any) -> bool:
    """Does single precision not hold a number beside a tensor that does?"""
    import paddle

    return isinstance(beside, paddle.pir.Value) and _lost_as(number, beside.dtype)


def _lost_as(number: Any, dtype: Any) -> bool:
    import paddle

    number = int(number) if isinstance(number, np.integer) else number
    if not isinstance(number, (int, float)):
        return False
    whole = dtype in (paddle.int32, paddle.int64) and float(number).is_integer()
    return (whole or dtype in (paddle.float64, paddle.complex128)) and not _is_single(number)


def _operand(number: float, beside: Any) -> Any:
    import paddle

    if beside.dtype in (paddle.float64, paddle.complex128):
        return paddle.full([], number, beside.dtype)
    _refuse_rounded(number)
    return paddle.full([], int(number), beside.dtype)


def _is_single(number: float) -> bool:
    """Does single precision hold it?"""
    try:
        return number != number or bool(struct.unpack("f", struct.pack("f", number))[0] == number)
    except OverflowError:
        return False


def _full(operator: Callable[..., Any], shape: Any, number: Any, dtype: Any, *rest: Any, **named: Any) -> Any:
    import paddle

    if dtype == paddle.int64 and isinstance(number, (int, float, np.integer)):
        _refuse_rounded(number)
    sizes = shape if isinstance(shape, (list, tuple)) else [shape]
    if not any(isinstance(size, paddle.pir.Value) for size in sizes) or not _lost_as(number, dtype):
        return operator(shape, number, dtype, *rest, **named)
    nothing = operator(shape, 0, dtype, *rest, **named)  # of sizes that vary it is a number of single precision
    return paddle.add(nothing, _operand(number, nothing))


def _full_like(operator: Callable[..., Any], like: Any, number: Any, dtype: Any, *rest: Any, **named: Any) -> Any:
    import paddle

    nothing = operator(like, 0, dtype, *rest, **named)
    if not _lost(number, nothing):
        return operator(like, number, dtype, *rest, **named)
    return paddle.add(nothing, _operand(number, nothing))


def _full_batch_size_like(
    operator: Callable[..., Any], like: Any, shape: Any, dtype: Any, number: float, *rest: Any, **named: Any
) -> Any:
    import paddle

    nothing = operator(like, shape, dtype, 0.0, *rest, **named)
    if not _lost(number, nothing):
        return operator(like, shape, dtype, number, *rest, **named)
    return paddle.add(nothing, _operand(number, nothing))


def _pad(operator: Callable[..., Any], value: Any, sizes: Any, number: Any, *rest: Any, **named: Any) -> Any:
    if _lost(number, value):
        raise TraceError(f"a program holds {number!r} in single precision where it pads", "Use paddle.concat()")
    return operator(value, sizes, number, *rest, **named)


def _refuse_rounded(number: Any) -> None:
    """Above 2**53 nothing tells what a whole number was, once it is a float."""
    number = int(number) if isinstance(number, np.integer) else number
    if HELD < abs(number) < 2**63 and (isinstance(number, float) or float(number) != number):
        reason = f"a program holds the whole number {number:.17g} in double precision"
        raise TraceError(reason, "Keep it in a tensor of the layer")
