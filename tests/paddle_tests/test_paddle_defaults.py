"""What functions that a method calls are given: tensors that are their defaults, and what is passed by name."""

from __future__ import annotations

from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, grid, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
NOTHING, TABLE, MASK = paddle.zeros([0, 4]), grid(2, 4) * 3, paddle.to_tensor([True, False, True, False])
LARGE = paddle.ones([300, 300])


class Block(paddle.nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    def forward(self, x: Any, cache: Any = NOTHING, *, table: Any = TABLE, mask: Any = MASK) -> Any:
        y = paddle.concat([cache, self.linear(x)])
        return paddle.where(mask, y, paddle.zeros_like(y)) + table.sum(0)


class Model(paddle.nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Any) -> Any:
        return self.block(x) * 2


def test_a_sublayer_s_defaults() -> None:
    model = Model()
    hot = inference(Model.forward.__get__(model), fallback="error")
    with paddle.no_grad():
        for n in (2, 3, 5):
            same(hot(grid(n, 4)), Model.forward(model, grid(n, 4)))
        served(captures=2)
        TABLE.set_value(TABLE + 1)
        for n in (2, 3):
            same(hot(grid(n, 4)), Model.forward(model, grid(n, 4)))
    assert counts()["eager_calls"] == 0


TOTAL = paddle.zeros([4])


def test_what_is_written_to_a_default_is_not_lost() -> None:
    def grown(x: Any, total: Any = TOTAL) -> Any:
        total.add_(x.sum(0))
        return total + x

    hot = inference(lambda x: grown(x) * 2)
    with paddle.no_grad():
        for n in range(1, 4):
            x = grid(2, 4)
            same(hot(x), (x.sum(0) * n + x) * 2)
            same(TOTAL, x.sum(0) * n)
    assert counts()["hits"] == 0


def raised(x: Any, table: Any = TABLE) -> Any:
    table += 1
    return table + x


def test_a_default_that_is_assigned_anew() -> None:
    """Of an eager tensor this ended the process."""

    def method(x: Any) -> Any:
        return raised(x) * 2

    hot = inference(method, fallback="error")
    with paddle.no_grad():
        for _ in range(3):
            same(hot(grid(2, 4)), method(grid(2, 4)))
    served(captures=1)


def test_a_large_one_is_left_to_eager_code() -> None:
    def scaled(x: Any, table: Any = LARGE) -> Any:
        return x * table.sum()

    def method(x: Any) -> Any:
        return scaled(x)

    hot = inference(method)
    with paddle.no_grad():
        for _ in range(2):
            same(hot(grid(2, 4)), method(grid(2, 4)))
    eagerly("it uses a tensor that is neither an argument nor held by the layer")


@paddle.no_grad()
def by_name(x: Any, *, by: float = 2.0, sign: int = 1) -> Any:
    return x * by * sign


@paddle.no_grad()
def all_of_them(first: Any, /, *others: Any, by: float = 2.0, **options: Any) -> Any:
    found = first
    for each in others:
        found = found + each * by
    return found - options.get("less", 0.5) * len(options)


def by_position_alone(x: Any, times: int = 2, /) -> Any:
    for each in range(times):
        x = x * (each + 1)
    return x


class Behind(paddle.nn.Layer):
    @paddle.no_grad()
    def forward(self, x: Any, *more: Any, by: float = 2.0, **options: Any) -> Any:
        @paddle.no_grad()
        def inner(y: Any, *, power: int = 2) -> Any:
            return y**power

        x = by_name(x, by=by) + by_name(x, sign=-1) + by_name(x) + by_position_alone(x)
        x = x + all_of_them(x, *more, by=by, **options) + all_of_them(x, by=3.0)
        return inner(x) + inner(x, power=3), by


def test_what_a_decorator_of_the_framework_hands_on() -> None:
    """Paddle hands on to the function behind it what that takes by position, and nothing else."""
    layer = Behind().eval()
    hot = inference(layer, backend="onnxruntime", verify="off", fallback="error", max_versions=12)
    x = paddle.to_tensor([[1.0, -2.0], [0.5, 3.0]])
    for given in ({}, {"by": 3.0}, {"less": 0.25, "by": 1.0, "other": None}):
        for more in ((), (x, x + 1)):
            same(hot(x, *more, **given), Behind.forward(layer, x, *more, **given))
