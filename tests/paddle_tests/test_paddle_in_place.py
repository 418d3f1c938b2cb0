"""Writers in place, whose results no name is given: on tensors of the method's own, views, arguments and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, grid, right, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
functional = paddle.nn.functional
CALLS = [(2, 3), (2, 3), (4, 3), (5, 3), (1, 3)]


def arithmetic(x: Any) -> Any:
    y = x * 1
    y.add_(x)
    y.scale_(2.0).subtract_(x * 3)
    other = y
    y.clip_(-1.0, 1.0)
    y[0] = 5.0
    y.multiply_(x)
    z = paddle.zeros_like(y)
    paddle.assign(y, output=z)
    paddle.assign(z + 1, z)
    return other, y, z


def functions(x: Any) -> Any:
    y = x * x + 1
    y.sqrt_()
    paddle.tanh_(y)
    functional.relu_(y)
    paddle.where_(x > 0, y, x * 5)
    y.masked_fill_(x > 0.5, 3.0)
    whole = y.astype("int64")
    whole.add_(paddle.ones_like(whole))
    return y, whole


def rows(x: Any) -> Any:
    y = paddle.concat([x, x, x]) * 1
    y.index_add_(paddle.to_tensor([0, 1]), 0, paddle.ones([2, 3]))
    y.scatter_(paddle.to_tensor([2]), x[:1] * 3)
    y.put_along_axis_(paddle.to_tensor([[0, 1, 0]]), 7.0, 0)
    return y


def shapes(x: Any) -> Any:
    y = x * 1
    y.unsqueeze_(0)
    y.squeeze_(0)
    y.transpose_([1, 0])
    same = y
    y.flatten_()
    z = (x * 2).transpose([1, 0])
    z.reshape_([-1])
    kind = x * 3
    kind.cast_("float64")
    truths, wide, sums = x * 1, x * 1, x * 1
    truths.logical_not_()
    wide.add_(x.astype("float64"))
    sums.cumsum_()
    return y, same, z, kind, truths, wide, sums


def of_a_view_of_the_argument(x: Any) -> Any:
    y = x.transpose([1, 0]).reshape_([-1])
    return y * 2, x + 1


def in_a_branch(x: Any) -> Any:
    y = x * 1
    if x.sum() > 100:
        y = y.add_(x)
    return y


def in_a_loop(x: Any) -> Any:
    y = x * 1
    for i in range(3):
        y.add_(x * i)
    return y


def in_a_list(x: Any) -> Any:
    held = [x * 1, x * 2]
    held[0].reshape_([-1])
    held[1].add_(x)
    return held[0], held[1] + 1


METHODS = [arithmetic, functions, rows, shapes, of_a_view_of_the_argument, in_a_branch, in_a_loop, in_a_list]


@pytest.mark.parametrize("method", METHODS)
def test_writers_in_place(method: Callable[[Any], Any]) -> None:
    right(method, *[(grid(*sizes),) for sizes in CALLS])


class State(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", paddle.zeros([3]))
        self.linear = paddle.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        x.multiply_(paddle.full([], 2.0))
        self.total.add_(x.sum(0))
        return self.linear(x) + self.total


def test_an_argument_and_a_buffer_are_written_to() -> None:
    mine, theirs = State().eval(), State().eval()
    theirs.set_state_dict(mine.state_dict())
    fast = inference(mine, backend="onnxruntime")
    with paddle.no_grad():
        for sizes in CALLS:
            x, y = grid(*sizes), grid(*sizes)
            same(fast(x), State.forward(theirs, y))
            np.testing.assert_array_equal(x.numpy(), y.numpy())
            same(mine.total, theirs.total)
    assert counts()["eager_calls"] == 0


def through_a_view(x: Any) -> Any:
    y = x * 1
    z = y[0]
    z.add_(x[1])
    return y


def lost_in_a_branch(x: Any) -> Any:
    y = x * 1
    if x.sum() > -100:
        y.add_(x)
    return y


def lost_shape_in_a_branch(x: Any) -> Any:
    y = x * 1
    if x.sum() > -100:
        y.reshape_([-1])
    return y


def of_the_argument(x: Any) -> Any:
    y = x
    y.unsqueeze_(0)
    return y * 2


def view_of_what_was_reshaped(x: Any) -> Any:
    y = x * 1
    view = y[0]
    y.reshape_([-1])
    y.add_(paddle.ones([]))
    return view


@pytest.mark.parametrize(
    "method",
    [through_a_view, lost_in_a_branch, lost_shape_in_a_branch, of_the_argument, view_of_what_was_reshaped],
)
def test_what_no_name_tells_of_is_left_to_eager_code(method: Callable[[Any], Any]) -> None:
    fast = inference(method, verify="off", backend="onnxruntime")
    with paddle.no_grad():
        for sizes in [(2, 3), (2, 3), (4, 3)]:
            same(fast(grid(*sizes)), method(grid(*sizes)))
    eagerly("in place")


def test_sums_in_place_of_small_integers_are_left_to_eager_code() -> None:
    def method(x: Any) -> Any:
        y = x.astype("int32")
        y.cumsum_(0)
        return y

    fast = inference(method, verify="off", backend="onnxruntime")
    with paddle.no_grad():
        same(fast(grid(2, 3)), method(grid(2, 3)))
    eagerly("of another shape or element type")
