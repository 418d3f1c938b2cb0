"""What the tests of the Paddle side share: comparison with eager, a small block; counts of `support`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from support import alike, counts, eagerly, served

from hybrid_infer import inference

__all__ = [
    "Block", "counts", "eagerly", "everything", "grid", "right", "right_when_captured", "same", "served", "twice",
]  # fmt: skip

#: Numbers of every kind: zeros, infinities and what is no number, whole ones and halves, the ends of float32.
NUMBERS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-38, 1e-45, 2.0, -2.0, 100.0, 1e-7,
    -1e-7, 1 + 1e-6, 1e10, -1e10, 0.9999999, -0.9999999,
)  # fmt: skip


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


def everything(dtype: str, *more: float) -> tuple[Any, Any]:
    """Numbers of every kind, each with each."""
    found = np.meshgrid(*[np.array([*NUMBERS, *more]).astype(dtype)] * 2)
    return paddle.to_tensor(found[0].ravel()), paddle.to_tensor(found[1].ravel())


def right_when_captured(
    method: Callable[..., Any], *calls: Sequence[Any], captures: int, tolerance: float = 1e-5
) -> None:
    """Each call is served by one of so many captures, without verification, and gives what eager code does."""
    mine = inference(method, verify="off", fallback="error")
    with paddle.no_grad():
        for given in calls:
            same(mine(*given), method(*given), tolerance)
    served(captures=captures)


def right(method: Callable[..., Any], *calls: Sequence[Any], tolerance: float = 2e-6) -> None:
    """Each call is served, without verification, and gives what eager code does."""
    mine = inference(method, verify="off", fallback="error", backend="onnxruntime")

    def compare(found: Any, eager: Any) -> None:
        assert found.dtype == eager.dtype and found.shape == eager.shape
        np.testing.assert_allclose(found.numpy(), eager.numpy(), rtol=tolerance, atol=min(tolerance, 1e-7))

    with paddle.no_grad():
        for given in calls:
            alike(mine(*given), method(*given), paddle.Tensor, compare)
    found = counts()
    assert found["hits"] == len(calls) and not found["eager_calls"], found


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
