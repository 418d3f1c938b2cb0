"""Sides of a branch that change what lies outside of the layer, raise, or differ in more than the values of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import paddle
import pytest
from paddle_support import counts, eagerly, grid, same

from hybrid_infer import inference

pytestmark = pytest.mark.paddle

NUMPYS = np.random.default_rng(0)
MODE = "eval"
HELD = {"mode": 0, "list": [0]}


class Kept:
    mode = 0


@pytest.fixture(autouse=True)
def first_values() -> Iterator[None]:
    global MODE
    MODE = "eval"
    HELD["mode"], HELD["list"][0], Kept.mode = 0, 0, 0  # type: ignore[index]
    yield


def set_mode(mode: str) -> None:
    global MODE
    MODE = mode


def global_of_both_sides(x: Any) -> Any:
    if x.sum() > 0:
        set_mode("boost")
    else:
        set_mode("eval")
    y = paddle.tanh(x)
    return y * 10 if MODE == "boost" else y


def set_held(value: int) -> None:
    HELD["mode"] = HELD["list"][0] = value  # type: ignore[index]


def dict_of_both_sides(x: Any) -> Any:
    if x.sum() > 0:
        set_held(1)
    else:
        set_held(0)
    return x * HELD["mode"] + HELD["list"][0]  # type: ignore[index]


def set_kept(value: int) -> None:
    Kept.mode = value


def class_of_both_sides(x: Any) -> Any:
    if x.sum() > 0:
        set_kept(1)
    else:
        set_kept(0)
    return x * Kept.mode


def explicit_branch(x: Any) -> Any:
    box = {"mode": 0}

    def boost() -> Any:
        box["mode"] = 1
        return x * 2

    def plain() -> Any:
        box["mode"] = 0
        return x + 1

    return paddle.static.nn.cond(x.sum() > 0, boost, plain) * (box["mode"] + 1)


def _checked(x: Any) -> Any:
    if x.max() > 2:
        raise ValueError("too large")
    return x


def raises_and_catches(x: Any) -> Any:
    try:
        return _checked(x) * 2
    except ValueError:
        return x * 5


def none_or_a_tensor(x: Any) -> Any:
    found = None
    if x.sum() > 0:
        found = x
    return x if found is None else x * 3


def value_of_and(x: Any) -> Any:
    found = (x.sum() > 0) and x.max()
    return x + found.astype("float32")


def value_of_or(x: Any) -> Any:
    found = (x.sum() > 0) or x.min()
    return x + found.astype("float32")


def none_behind_or(x: Any) -> Any:
    found = (x.sum() > 0) or None
    return x if found is None else x * 2


REFUSED = {
    global_of_both_sides: "one side changes the global MODE",
    dict_of_both_sides: "one side changes the global HELD",
    class_of_both_sides: "one side changes Kept.mode",
    explicit_branch: "one side changes box",
    raises_and_catches: "one side raises ValueError",
    none_or_a_tensor: "decides whether found is None",
    value_of_and: "`and` depends on the values of a tensor, and gives one of its sides",
    value_of_or: "`or` depends on the values of a tensor, and gives one of its sides",
    none_behind_or: "`or` depends on the values of a tensor, and gives one of its sides",
}


def _compare(function: Callable[..., Any], signs: list[int]) -> None:
    hot = inference(function, verify="off")
    state = lambda: (MODE, dict(HELD), list(HELD["list"]), Kept.mode)  # type: ignore[call-overload]  # noqa: E731
    with paddle.no_grad():
        for sign in signs:
            x = (grid(2, 4) + 3) * sign
            expected, after = function(x), state()
            same(hot(x), expected, 1e-4)
            assert state() == after


def test_a_random_number_of_numpy_on_a_side_is_named() -> None:
    def method(x: Any) -> Any:
        return x * NUMPYS.random() if x.sum() > 0 else x

    with paddle.no_grad():
        inference(method, verify="off")(grid(2, 4) + 3)
    eagerly("one side changes the random numbers of the global NUMPYS")


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
@pytest.mark.parametrize("signs", [[1, 1, -1, 1], [-1, -1, 1, -1]], ids=["first yes", "first no"])
def test_it_is_left_to_eager(function: Callable[..., Any], signs: list[int]) -> None:
    _compare(function, signs)
    eagerly(REFUSED[function])


def truths(x: Any) -> Any:
    if (x.sum() > 0 and x.max() < 50) or not x.min() < -3:
        return x * 2
    return x - 1


NUMBER, NONE = 3, 0


def numbers(x: Any) -> Any:
    if x.sum() > 0 and NUMBER and x.shape[0]:
        return x * 2
    while (x.max() > 40 and NUMBER) or NONE:
        x = x - 1
    return x + 1 if not (x.min() < -3 and NUMBER) else x


def halves(x: Any) -> Any:
    return x * 2 if x.sum().astype("bfloat16") else x * 3


def none_on_both_sides(x: Any) -> Any:
    found = None
    y = x * 2 if x.sum() > 0 else x - 1
    return y if found is None else x


SERVED = [truths, numbers, halves, none_on_both_sides]


@pytest.mark.parametrize("function", SERVED, ids=lambda function: function.__name__)
def test_what_is_the_same_either_way_is_served(function: Callable[..., Any]) -> None:
    _compare(function, [1, 1, -1, 1])
    assert (counts()["captures"], counts()["eager_calls"]) == (1, 0)
