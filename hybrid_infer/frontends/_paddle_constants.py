"""Tensors that a method's code holds, such as the defaults of a function, as constants of the program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

WRITTEN = "it writes to a tensor that its code holds"
_ELEMENTS = 2**16  # of a tensor that is written into the program
_TYPES = ("FLOAT32", "FLOAT64", "INT32", "INT64", "BOOL")


def fits(tensor: Any) -> bool:
    """Can a tensor be one?"""
    return tensor.dtype.name in _TYPES and math.prod(tensor.shape) <= _ELEMENTS


def made(tensor: Any) -> Any:
    """What stands for it, where the program is at."""
    import paddle

    sizes = list(tensor.shape)
    return paddle.zeros(sizes, tensor.dtype) if 0 in sizes else array(tensor.numpy())


def array(numbers: Any) -> Any:
    """What stands for an array of NumPy's that has elements."""
    import paddle

    truth = numbers.dtype == bool  # of which the converter takes no constants
    return paddle.cast(paddle.assign(numbers.astype("int32")), "bool") if truth else paddle.assign(numbers)


def written(taken: Sequence[Any]) -> bool:
    """Does the program write to what stands for such a tensor?"""
    return any(op.name().endswith("_") for value in taken for op in value.all_used_ops())


@contextmanager
def first() -> Iterator[None]:
    """What is made inside stands before all else in the program under way."""
    import paddle

    here, block = paddle.pir.get_current_insertion_point(), paddle.static.default_main_program().global_block()
    if block.ops:
        paddle.pir.set_insertion_point(block.ops[0])
    try:
        yield
    finally:
        paddle.pir.set_insertion_point(here)
