"""Iterators that one side of a branch on values takes from: a trace goes through both sides, a call through one."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import paddle
import pytest
from paddle_support import eagerly, grid, same, served

from hybrid_infer import inference

pytestmark = pytest.mark.paddle

NUMBERS = [1.0, 2.0, 3.0, 4.0]


def _held() -> Any:
    return SimpleNamespace(numbers=iter(NUMBERS)).numbers


MAKERS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter(NUMBERS),
    "reversed": lambda: reversed(NUMBERS),
    "range": lambda: iter(range(4)),
    "deque": lambda: iter(deque(NUMBERS)),
    "zip": lambda: (each for each, _ in zip(NUMBERS, NUMBERS, strict=True)),
    "map": lambda: map(float, NUMBERS),
    "count": lambda: itertools.count(2.0),
    "chain": lambda: itertools.chain(NUMBERS, NUMBERS),
    "generator": lambda: (each for each in NUMBERS),
    "attribute": _held,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_a_side_takes_from_an_iterator_the_rest_does_not_find(kind: str) -> None:
    make = MAKERS[kind]

    def function(x: Any) -> Any:
        numbers = make()
        if x.sum() > 0:
            x = x + next(numbers)
        return x * next(numbers)

    hot = inference(function, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 1):
            same(hot(x), function(x))
    eagerly("one side changes numbers")


def test_what_a_turn_takes_from_an_iterator_the_rest_does_not_find() -> None:
    def function(x: Any) -> Any:
        numbers = iter(NUMBERS)
        for _ in range(2):
            x = x + next(numbers)
            if x.sum() > 10:
                break
        return x * next(numbers)

    hot = inference(function, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 1):
            same(hot(x), function(x))
    eagerly("one side changes numbers")


def test_what_a_side_takes_from_its_own_iterators_is_served() -> None:
    def function(x: Any) -> Any:
        numbers = iter(NUMBERS)
        x = x + next(numbers)
        if x.sum() > 0:
            for one, other in zip(NUMBERS, reversed(NUMBERS), strict=True):
                x = x * one + other
        return x * next(numbers)

    hot = inference(function, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 3):
            same(hot(x), function(x))
    served(captures=1)
