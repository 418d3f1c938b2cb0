"""Fractions of sizes that vary: made whole again, they are the numbers that Python makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import paddle
import pytest
from paddle_support import counts, same

from hybrid_infer import inference

pytestmark = pytest.mark.paddle

#: Sizes at which single precision makes another number of a fraction below, halves, squares and others.
SIZES = (5, 6, 2, 3, 9, 10, 14, 15, 16, 20, 25, 33, 50, 55, 90, 100, 110, 170)


def _cut(x: Any) -> Any:
    n = x.shape[0]
    lengths = int(n * 0.7), int(n * 0.29), int(n / 1.1), int(2.3 * n), int(n / 3), int(float(n) * 0.7), int((n - 9) / 2)
    return [paddle.zeros([abs(each) + 1]) for each in lengths], x * 2


def _rounded(x: Any) -> Any:
    n = x.shape[0]
    lengths = round(n / 3), round(n / 4), round(n * 0.35), round(n * 0.5), round(n * (100 / n) * 0.29)
    return [paddle.zeros([each]) for each in lengths], x * 2


def _up_and_down(x: Any) -> Any:
    n = x.shape[0]
    return [paddle.zeros([each]) for each in (math.ceil(n * 0.7), math.floor(n * 0.29), math.ceil(n / 4))], x * 2


def _rooted(x: Any) -> Any:
    n = x.shape[0]
    return x / math.sqrt(n), x * math.log(n), [paddle.zeros([each]) for each in (int(math.sqrt(n)), int(n**0.5))]


@pytest.mark.parametrize("method", [_cut, _rounded, _up_and_down, _rooted])
def test_they_are_made_whole_as_eagerly(method: Callable[..., Any]) -> None:
    mine = inference(method, verify="off", fallback="error", backend="onnxruntime")
    with paddle.no_grad():
        for n in SIZES:
            x = paddle.ones([n, 2])
            same(mine(x), method(x))
    assert counts()["captures"] == 2 and not counts()["eager_calls"], counts()


def _left(x: Any) -> Any:
    return paddle.zeros([int(x.shape[0] // 0.1)]), x * 2


def test_what_fractions_leave_is_fixed() -> None:
    mine = inference(_left, verify="off", fallback="error", backend="onnxruntime")
    with paddle.no_grad():
        for n in (5, 1, 3, 6):
            x = paddle.ones([n, 2])
            same(mine(x), _left(x))
