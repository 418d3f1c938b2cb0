"""Assignments to elements: along one axis and several, spread over rows, of numbers, by masks and lists of places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def a_number(x: Any, c: Any, p: int) -> None:
    c[0] = x.sum()
    c[1:, 0] = x.mean()
    c[1] = 3
    c[0, 2] = 3.5


def along_several_axes(x: Any, c: Any, p: int) -> None:
    c[0, 1] = x[0]
    c[0, 1:2] = x[2]
    c[-1, -2] = x[1]
    c[0, 1, 2] = x[0, 0]
    c[0, :, 1:3] = x[:1, :2]
    c[0:1, 0:1] = x[:1].unsqueeze(0)


def spread(x: Any, c: Any, p: int) -> None:
    c[:, 2] = x[0]
    c[:, -2:] = x[:2]
    c[:, 1:3, ::2] = x[0, :2]
    c[::2, 1] = x[1]


def at_a_place_that_varies(x: Any, c: Any, p: int) -> None:
    c[p, 1:3] = x[:2]
    c[p : p + 2, p] = x[0]
    c[p, :, 1] = x[0, 0]
    c[p, p] = 7


def by_a_mask_of_rows(x: Any, c: Any, p: int) -> None:
    c[x[:, 0] > 0] = 0.5
    c[x[:, 1] > 0] = x[:1]
    c[paddle.to_tensor([0, 2])] = x[1]


def backwards(x: Any, c: Any, p: int) -> None:
    c[::-1, 0] = x
    c[0, :, ::-2] = x[0, :2]
    c[-1:0:-1, 1, 3:1:-1] = x[1:, :2]
    c[1::-1] = x[0, 0]


METHODS = [a_number, along_several_axes, spread, at_a_place_that_varies, by_a_mask_of_rows, backwards]


@pytest.mark.parametrize("function", METHODS)
def test_elements(function: Callable[..., None]) -> None:
    def written(x: Any, c: Any, p: int) -> Any:
        function(x, c, p)
        return c * 2

    method = inference()(written)
    paddle.seed(0)
    with paddle.no_grad():
        for n in range(5):
            x, c = paddle.rand([3, 4]) - 0.5, paddle.rand([3, 3 + n % 2, 4])
            own = c.clone()
            same((method(x, c, n % 3), c), (written(x, own, n % 3), own))
    served(captures=2)


@pytest.mark.parametrize("dtype", ["bool", "int64", "float64"])
def test_elements_of_other_types(dtype: str) -> None:
    @inference
    def written(x: Any, c: Any) -> Any:
        c[0, 1] = x[0]
        c[:, 2] = x[1]
        c[1:, 0] = 1
        return c.astype("float32").sum()

    with paddle.no_grad():
        for n in range(3):
            x, c = (((paddle.rand([3, 4]) - 0.5) * 8).astype(dtype), paddle.zeros([3, 3 + n, 4], dtype=dtype))
            own = c.clone()
            same((written(x, c), c), (written.__hybrid_infer__.function(x, own), own))
    served(captures=2)


def test_elements_of_what_a_norm_gives() -> None:
    """ReXNet adds its input to some of the channels. The running statistics lie elsewhere."""

    class Net(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.norm = paddle.nn.BatchNorm2D(3)

        def compute(self, x: Any) -> Any:
            out = self.norm(x)
            out[:, 0:2] += x[:, :2]
            return out

        forward = inference(compute, fallback="error")

    net = Net()
    net.eval()
    with paddle.no_grad():
        for rows in (2, 2, 3, 4):
            x = paddle.rand([rows, 3, 4, 4])
            same(net(x), net.compute(x))
    served(2)
    assert net.norm._mean.abs().max() == 0
