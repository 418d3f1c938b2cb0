"""Elements and rows that are written where a mask says so, of which there is another number at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
FOUR = paddle.to_tensor([7.0, 8.0, 9.0, 10.0])


def raised(x: Any) -> Any:
    y = x * 2
    y[y > 0] += 1.0
    return y


def squares(x: Any) -> Any:
    y = x * 2
    mask = y > 0
    y[mask] = (x * x)[mask]
    return y


def whole_numbers(x: Any) -> Any:
    y = (x * 3).astype("int64")
    y[y > 2] *= 7
    return y


def rows(x: Any) -> Any:
    y = x * 2
    mask = y[:, 0] > 0
    y[mask] = (x * x)[mask]
    return y


def one_number(x: Any) -> Any:
    y = x * 2
    y[y > 0] = 5.0
    return y


def of_three_axes(x: Any) -> Any:
    y = paddle.stack([x, x * 2, x - 1])
    y[y > 0] *= 3
    mask = y[:, :, 0] > 1
    y[mask] = -y[mask]
    return y


def one_of_many(x: Any) -> Any:
    y = x * 2
    y[y > 0] = FOUR[:1]
    return y


def as_many_as_there_are(x: Any) -> Any:
    y = x * 2
    y[y > 0] = FOUR
    return y


METHODS = [raised, squares, whole_numbers, rows, one_number, of_three_axes, one_of_many]
ONE = paddle.to_tensor([[-1.0, -2.0, -3.0, 4.0], [-1.0, -2.0, -3.0, -4.0]])
SOME = paddle.to_tensor([[1.0, -2.0, -3.0, 4.0], [-1.0, 5.0, 7.0, -4.0]])
CALLS = [ONE, ONE, SOME, -ONE, SOME.abs(), -SOME.abs(), SOME[:, :3], paddle.concat([SOME, -SOME]), SOME[:1]]


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_of_any_number(method: Callable[[Any], Any], verify: str) -> None:
    mine = inference(method, verify=verify)
    with paddle.no_grad():
        for x in CALLS:
            same(mine(x), method(x))
    assert counts()["eager_calls"] == 0


def test_of_another_number_than_is_given() -> None:
    mine = inference(as_many_as_there_are, verify="off")
    with paddle.no_grad():
        for x in (SOME, SOME, ONE, -ONE, SOME):
            try:
                expected = as_many_as_there_are(x)
            except ValueError:
                with pytest.raises(ValueError):
                    mine(x)
            else:
                same(mine(x), expected)
    assert counts()["captures"] == 1 and counts()["hits"] > 1


def test_what_is_spread_over_rows_is_eager() -> None:
    def method(x: Any) -> Any:
        y = x * 2
        mask = y[:, 0] > 0
        y[mask] = (x * x)[mask][:, :1]
        return y

    mine = inference(method)
    with paddle.no_grad():
        for x in (SOME, SOME):
            same(mine(x), method(x))
    assert counts()["captures"] == 0
