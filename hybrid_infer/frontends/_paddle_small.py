"""Numbers and signs in the element type of a value, and logarithms of what is close to 1: paddle2onnx loses digits of
these. What Paddle makes of ``-value`` or ``value + 1.0`` is computed in float32."""

from __future__ import annotations

import math
from typing import Any


def number(given: float, like: Any) -> Any:
    """A constant in the element type of a value."""
    import paddle

    return paddle.full([], given, like.dtype)


def negative(value: Any) -> Any:
    import paddle

    return paddle.multiply(value, number(-1, value))


def log1p(value: Any) -> Any:
    """``log(1 + value)``; as such, as the converter has it, it has no digit left of a small number.

    Kahan's quotient, of the logarithm of what the sum was rounded to and of what that is above 1.
    """
    import paddle

    one = number(1.0, value)
    total = paddle.add(value, one)
    found = paddle.log(total) * (value / (total - one))
    return paddle.where(paddle.logical_or(total == one, total == number(math.inf, value)), value, found)
