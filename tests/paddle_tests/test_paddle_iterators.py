"""What one side of a branch on values takes, of an iterator or its like: a trace goes through both, a call through one.
"""

from __future__ import annotations

import array
import functools
import io
import itertools
import random
import re
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import paddle
import pytest
from paddle_support import eagerly, grid, same, served

from hybrid_infer import inference

pytestmark = pytest.mark.paddle

NUMBERS = [1.0, 2.0, 3.0, 4.0]


def _held() -> Any:
    return SimpleNamespace(numbers=iter(NUMBERS)).numbers


def _begun(numbers: Any, taken: int = 1) -> Any:
    for _ in range(taken):
        next(numbers)
    return numbers


def _alike() -> Any:
    """Its iterator is in no variable, and what it gives first equals what it gives next."""
    for each in (1.0, 1.0, 2.0, 3.0):  # noqa: UP028
        yield each


def _read_ahead() -> Any:
    numbers, others = itertools.tee(NUMBERS)
    assert [*others] == NUMBERS
    return numbers


def _number(match: re.Match[str]) -> float:
    return float(match.group())


class _Numbered:
    def __getitem__(self, place: int) -> float:
        return float(place)


class _Slotted:
    """An object of C's kind in Python: it has no ``__dict__``."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0.0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> float:
        self.taken += 1
        return self.taken


class _Both(_Slotted):
    pass


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
    "begun generator": lambda: _begun(_alike()),
    "cycle": lambda: itertools.cycle(NUMBERS),
    "second turn of a cycle": lambda: _begun(itertools.cycle(NUMBERS), 5),
    "tee": lambda: itertools.tee(NUMBERS)[0],
    "tee behind another": _read_ahead,
    "product": lambda: map(sum, itertools.product(NUMBERS, NUMBERS)),
    "numbered": lambda: iter(_Numbered()),
    "array": lambda: iter(array.array("d", NUMBERS)),
    "slots": _Slotted,
    "slots beside attributes": _Both,
}
#: Of which nothing shows how far they have come.
HIDDEN: dict[str, Callable[[], Any]] = {
    "calls": lambda: iter([*NUMBERS].pop, None),
    "matches": lambda: map(_number, re.finditer(r"\d", "1234")),
    "memory": lambda: iter(memoryview(b"\1\2\3\4")),
    "flat": lambda: numpy.array(NUMBERS).flat,
}
#: What gives one after another when it is called.
CALLED: dict[str, Callable[[], Any]] = {
    "method of a list": lambda: [*NUMBERS].pop,
    "method of an iterator": lambda: iter(NUMBERS).__next__,
    "partial": lambda: functools.partial(next, iter(NUMBERS)),
    "stream": lambda: (lambda stream: lambda: float(stream.readline()))(io.StringIO("1\n2\n3\n4\n")),
    "random": lambda: random.Random(3).random,
}


def is_right_on_both_sides(function: Callable[[Any], Any]) -> None:
    hot = inference(function, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 3):
            same(hot(x), function(x))


@pytest.mark.parametrize("kind", [*MAKERS, *HIDDEN])
def test_what_a_side_takes_from_an_iterator_the_rest_does_not_find(kind: str) -> None:
    make = {**MAKERS, **HIDDEN}[kind]

    def function(x: Any) -> Any:
        numbers = make()
        if x.sum() > 0:
            x = x + next(numbers)
        return x * next(numbers)

    is_right_on_both_sides(function)
    eagerly("one side changes numbers" + (" (or may: it does not show)" if kind in HIDDEN else ""))


@pytest.mark.parametrize("kind", CALLED)
def test_what_a_side_gets_by_a_call_the_rest_does_not_get(kind: str) -> None:
    make = CALLED[kind]

    def function(x: Any) -> Any:
        take = make()
        if x.sum() > 0:
            x = x + take()
        return x * take()

    is_right_on_both_sides(function)
    eagerly("one side changes")


@pytest.mark.parametrize("kind", MAKERS)
def test_iterators_that_no_side_takes_from_are_served(kind: str) -> None:
    make = MAKERS[kind]

    def function(x: Any) -> Any:
        numbers = make()
        x = x + next(numbers)
        if x.sum() > 0:
            x = x * 2 if numbers is not None else x
        return x * next(numbers)

    is_right_on_both_sides(function)
    served(captures=1)


def test_what_a_turn_takes_from_an_iterator_the_rest_does_not_find() -> None:
    def function(x: Any) -> Any:
        numbers = iter(NUMBERS)
        for _ in range(2):
            x = x + next(numbers)
            if x.sum() > 10:
                break
        return x * next(numbers)

    is_right_on_both_sides(function)
    eagerly("one side changes numbers")


def test_what_a_side_takes_from_its_own_iterators_is_served() -> None:
    def function(x: Any) -> Any:
        numbers = iter(NUMBERS)
        x = x + next(numbers)
        if x.sum() > 0:
            for one, other in zip(NUMBERS, reversed(NUMBERS), strict=True):
                x = x * one + other
        return x * next(numbers)

    is_right_on_both_sides(function)
    served(captures=1)
