"""A tensor's value that is asked for in a `try`: the tracer's error ends in an `except` of the program's own."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from paddle_support import eagerly, same, served

from hybrid_infer import inference

pytestmark = pytest.mark.paddle


def listed(x: Any) -> Any:
    return 1 + 2 * int(x.tolist()[0][0] > 2)


def by_numpy(x: Any) -> Any:
    return float(np.asarray(x).max())


def formatted(x: Any) -> Any:
    return float(f"{x.max():.1f}")


def indexed(x: Any) -> Any:
    return [0, 1, 2, 3][x.astype("int64").max()]


def searched(x: Any) -> Any:
    return 1 + int(x.max() in [3.0])


def rooted(x: Any) -> Any:
    return math.sqrt(x.max())


def greatest(x: Any) -> Any:
    return max(float(each) for each in x[0])


@pytest.mark.parametrize(
    "ask", [listed, by_numpy, formatted, indexed, searched, rooted, greatest], ids=lambda ask: ask.__name__
)
def test_no_other_way_is_taken_than_eagerly(ask: Callable[[Any], Any]) -> None:
    usual = ask(paddle.ones([2, 4]))

    @inference
    def careful(x: Any) -> Any:
        try:
            n = ask(x)
        except Exception:
            n = usual
        return x * n

    for value in (1.0, 3.0, 1.0):
        x = paddle.full([2, 4], value)
        same(careful(x), x * ask(x))
    eagerly("")


def test_the_line_that_asks_is_named_where_a_context_catches() -> None:
    @inference
    def careful(x: Any) -> Any:
        n = 1
        with contextlib.suppress(Exception):
            n = x.tolist()[0][0]
        return x * n

    for value in (1.0, 3.0):
        x = paddle.full([2, 4], value)
        same(careful(x), x * value)
    line = careful.__wrapped__.__code__.co_firstlineno + 4
    eagerly("it takes the values of a tensor (tolist)", f"test_paddle_swallowed.py:{line}")


def test_so_is_what_hybrid_infer_itself_refuses() -> None:
    @inference
    def careful(x: Any) -> Any:
        try:
            return x.view("int32").astype("float32")
        except Exception:
            return x * 1065353216  # what the bits of 1.0 are as an integer

    for value in (1.0, 3.0):
        x = paddle.full([2, 4], value)
        same(careful(x), x.view("int32").astype("float32"))
    eagerly("it views a tensor in another element type")


def test_errors_that_eager_has_as_well_are_the_programs_affair() -> None:
    @inference
    def careful(x: Any) -> Any:
        try:
            return x * {"a": 1}["b"]
        except KeyError:
            return x * 2

    for value in (1.0, 3.0):
        x = paddle.full([2, 4], value)
        same(careful(x), x * 2)
    served(captures=1)
