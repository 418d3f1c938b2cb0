"""Tensors that grow or shrink from turn to turn of a loop that values end: their sizes are those of each turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, grid, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def a_size_in_the_loop(x: Any, turns: Any) -> Any:
    while turns > 0:
        x = paddle.concat([x, x[:, -1:] * 2], axis=1) * x.shape[1]
        turns = turns - 1
    return x


def positions(x: Any, turns: Any) -> Any:
    """As a decoder that generates: a start token, and embeddings of places, which one of them would fit as well."""
    ids, table = x[:, :1], paddle.arange(64, dtype="float32") * 0.5
    while turns > 0:
        places = table[paddle.arange(ids.shape[1])].unsqueeze(0)
        ids = paddle.concat([ids, (ids + places).sum(axis=1, keepdim=True)], axis=1)
        turns = turns - 1
    return ids


def a_size_that_ends_it(x: Any, turns: Any) -> Any:
    while (x.shape[1] < 9) and turns > 0:
        x = paddle.concat([x, x[:, -1:] * 2], axis=1)
        turns = turns - 1
    return x


def a_size_behind_it(x: Any, turns: Any) -> Any:
    found = paddle.zeros([x.shape[0], 0])
    for i in range(turns):
        found = paddle.concat([found, x[:, i : i + 1]], axis=1)
    return found, paddle.arange(found.shape[1]) * 2


def shrinks(x: Any, turns: Any) -> Any:
    y = x.mean()
    while turns > 0:
        x = x[:, 1:]
        y = y * 0.5 + x.shape[1]
        turns = turns - 1
    return y


def a_loop_in_a_loop(x: Any, turns: Any) -> Any:
    y = x.sum()
    while turns > 0:
        again = turns + 0
        while again > 0:
            x = paddle.concat([x, x[:, :1]], axis=1)
            again = again - 1
        y = y * 0.5 + x.shape[1]
        turns = turns - 1
    return y, x


def two_that_grow(x: Any, turns: Any) -> Any:
    """As a cache of keys and values, in a list."""
    cache, y = [x, x * 2], x.sum(axis=1)
    while turns > 0:
        cache = [paddle.concat([each, each[:, -1:] + 1], axis=1) for each in cache]
        y = y + (cache[0] * cache[1]).sum(axis=1) / cache[0].shape[1]
        turns = turns - 1
    return y, cache


FUNCTIONS = [
    a_size_in_the_loop, positions, a_size_that_ends_it, a_size_behind_it, shrinks, a_loop_in_a_loop, two_that_grow,
]  # fmt: skip


@pytest.mark.parametrize("verify", ["off", "build"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_sizes_in_a_loop_are_those_of_the_turn(function: Callable[..., Any], verify: str) -> None:
    """The first call has one turn, so that a comparison finds nothing of what a second one needs."""
    hot = inference(function, backend="onnxruntime", verify=verify)
    with paddle.no_grad():
        for width, turns in ((5, 1), (5, 3), (5, 2), (6, 3), (7, 4)):
            given = grid(2, width), paddle.to_tensor(turns)
            same(hot(*given), function(*given))
    found = counts()
    assert found["captures"] == 2 and not found["fallbacks"], found


def test_sizes_that_stay_are_known_in_a_loop() -> None:
    """What does not grow is what it was: a shape that needs its number is served."""

    def method(x: Any, turns: Any) -> Any:
        while turns > 0:
            x = paddle.concat([x, x[:, -1:]], axis=1)
            parts = [x[i] * i for i in range(x.shape[0])]
            x = paddle.stack(parts)
            turns = turns - 1
        return x

    hot = inference(method, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for turns in (1, 3):
            given = grid(2, 5), paddle.to_tensor(turns)
            same(hot(*given), method(*given))
    assert counts()["captures"] == 1 and not counts()["fallbacks"]


@pytest.mark.parametrize("verify", ["off", "build"])
def test_how_many_parts_a_tensor_has_is_a_number(verify: str) -> None:
    """It was a tensor, in silence without a comparison, and the method ran eagerly with one."""

    def method(x: Any, turns: Any) -> Any:
        chosen, grown = x[x[:, 0] > 0], x
        while turns > 0:
            grown = paddle.concat([grown, grown[:1] * len(grown)])
            turns = turns - 1
        return grown, len(x), len(chosen), len(grown) * 2, x + len(chosen)

    hot = inference(method, backend="onnxruntime", verify=verify)
    with paddle.no_grad():
        for height, turns in ((4, 1), (6, 3), (5, 2), (7, 0)):
            given = grid(height, 3), paddle.to_tensor(turns)
            same(hot(*given), method(*given))
    assert counts()["captures"] == 2 and not counts()["fallbacks"], counts()


def test_what_a_branch_makes_of_sizes_that_values_decide_is_not_left_to_an_engine_that_spoils_it() -> None:
    """OpenVINO gave numbers from elsewhere in its memory, at each call whose size was the largest so far."""
    linear = paddle.nn.Linear(16, 10)

    def expanded(x: Any, lengths: Any) -> Any:
        places = paddle.zeros([1, lengths.sum(), 4])
        if lengths[0] >= 1:
            places = places + 1
        return linear(paddle.matmul(places, x)).transpose([0, 2, 1]) + 0

    hot = inference(expanded, backend="openvino", verify="off")
    with paddle.no_grad():
        for lengths in ([1, 2, 3], [4, 6, 9], [0, 2, 3], [10, 12, 13], [0, 0, 63]):
            given = grid(1, 4, 16), paddle.to_tensor(lengths)
            same(hot(*given), expanded(*given))
