"""What rules that write operators out have in common: numbers and signs in the element type of a value, the logarithm
of what is close to 1, calls that are to be refused, and where in a program they write.

paddle2onnx computes what Paddle makes of ``-value`` or ``value + 1.0`` in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._types import NOWHERE

CLOSE = 1e-15  # what Paddle takes for no difference


@contextmanager
def in_place_of(op: Any, what: str) -> Iterator[None]:
    """What is written inside stands before an operator. Raises TraceError where `what` it computes cannot be written.
    """
    import paddle

    before = paddle.pir.get_current_insertion_point()
    paddle.pir.set_insertion_point(op)
    try:
        yield
    except TraceError:
        raise
    except Exception as error:
        text = str(error).strip().splitlines()[:1]
        raise TraceError(f"Paddle could not spell {what} out: {' '.join(text)[:300]}") from error
    finally:
        paddle.pir.set_insertion_point(before)


def is_float(value: Any) -> bool:
    return value.dtype.name in ("FLOAT32", "FLOAT64")


def number(given: float, like: Any) -> Any:
    """A constant in the element type of a value."""
    import paddle

    return paddle.full([], given, like.dtype)


def alike(value: Any, other: Any) -> Any:
    """Where numbers are equal to Paddle: of fractions, where they differ by next to nothing."""
    import paddle

    same = value == other
    if not is_float(value):
        return same
    return paddle.logical_or(same, paddle.abs(paddle.subtract(value, other)) < number(CLOSE, value))


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

    count = paddle.sum(paddle.cast(paddle.reshape(wrong, [-1]), "int64"), axis=0)
    place = paddle.minimum(count, paddle.full([], 1, "int64")) * paddle.full([], NOWHERE, "int64")
    row = paddle.index_select(paddle.unsqueeze(value, 0), paddle.reshape(place, [1]), 0)
    return paddle.squeeze(row, [0])
