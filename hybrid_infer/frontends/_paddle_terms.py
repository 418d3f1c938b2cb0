"""What rules that write operators out have in common: numbers and signs in the element type of a value, the logarithm
of what is close to 1, and calls that are to be refused.

paddle2onnx computes what Paddle makes of ``-value`` or ``value + 1.0`` in float32.
"""

from __future__ import annotations

import math
from typing import Any

NOWHERE = 2**40  # an index that no table has


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


def unless(wrong: Any, value: Any) -> Any:
    """A value; where some element is wrong, an engine is asked for one that is not there: eager code raises as well."""
    import paddle

    count = paddle.sum(paddle.cast(wrong, "int64"), axis=list(range(wrong.ndim)))
    place = paddle.minimum(count, paddle.full([], 1, "int64")) * paddle.full([], NOWHERE, "int64")
    row = paddle.index_select(paddle.unsqueeze(value, 0), paddle.reshape(place, [1]), 0)
    return paddle.squeeze(row, [0])
