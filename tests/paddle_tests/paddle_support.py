"""What the tests of the Paddle side share: comparison with eager, a small block; counts of `support`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from support import alike, counts, eagerly, served

__all__ = ["Block", "counts", "eagerly", "grid", "same", "served", "twice"]


def grid(*shape: int) -> Any:
    """A float32 tensor of distinct values between -1 and 1."""
    return paddle.linspace(-1, 1, int(np.prod(shape))).reshape(list(shape))


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal in structure, types, element types, shapes and (up to rounding) values."""

    def compare(mine: Any, eager: Any) -> None:
        assert mine.dtype == eager.dtype and mine.shape == eager.shape and mine.place == eager.place
        wide = [t.detach().astype("float32") if t.dtype == paddle.bfloat16 else t for t in (mine, eager)]
        np.testing.assert_allclose(*[t.numpy() for t in wide], rtol=tolerance, atol=tolerance)

    alike(found, expected, paddle.Tensor, compare)


def twice(function: Callable[..., Any], eager: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a decorated function two times (a miss, then a hit) and compare each result with the eager one."""
    with paddle.no_grad():
        expected = eager(*args, **kwargs)
        same(function(*args, **kwargs), expected)
        found = function(*args, **kwargs)
        same(found, expected)
    return found


class Block(paddle.nn.Layer):
    """The smallest layer worth compiling; `forward` is not decorated."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return paddle.nn.functional.relu(self.linear(x))
