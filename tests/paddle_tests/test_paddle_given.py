"""Lists, dicts and objects among the arguments, which a method changes: caches of keys and values above all."""

from __future__ import annotations

from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

import given_objects  # noqa: E402
from given_objects import CHANGES, Cache  # noqa: E402
from paddle_support import Block, counts, eagerly, grid, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
X = grid(2, 4)


class Joins:
    @staticmethod
    def joined(a: Any, b: Any) -> Any:
        return paddle.concat([a, b])


def numbers(value: Any) -> Any:
    if not isinstance(value, paddle.Tensor):
        return None
    return tuple(value.shape), [round(n, 4) for n in value.flatten().tolist()]


def same_state(found: Any, expected: Any) -> None:
    assert given_objects.described(found, numbers) == given_objects.described(expected, numbers)


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_method_changes_is_changed(name: str) -> None:
    function, make = CHANGES[name]
    method = inference()(function)
    with paddle.no_grad():
        mine, eager = make(X, Joins), make(X, Joins)
        for n in range(7):
            x = X + n
            ids = given_objects.containers(mine)
            found, expected = method(x, mine), function(x, eager)
            same_state((found, mine), (expected, eager))
            if name not in ("another_part", "swapped"):
                assert given_objects.containers(mine)[: len(ids)] == ids
    # The first call of some does no more than to keep what it is given.
    assert counts()["hits"] >= 1 and set(counts()["fallbacks"]) <= {"it computes nothing from its arguments"}, counts()


def test_a_cache_costs_three_captures_however_long_it_grows() -> None:
    """Empty, filled, and of a length that varies."""
    method = inference()(given_objects.returned)
    with paddle.no_grad():
        for _ in range(2):
            mine, eager = Cache(Joins), Cache(Joins)
            for n in range(8):
                found, expected = method(X + n, mine), given_objects.returned(X + n, eager)
                same_state((found, mine), (expected, eager))
                assert found["cache"] is mine
    served(captures=3)


def test_a_dict_of_a_layers_keys() -> None:
    class Hot(Block):
        @inference()
        def forward(self, x: Any, cache: dict[str, Any]) -> Any:
            keys = self.linear(x)
            cache["keys"] = paddle.concat([cache["keys"], keys]) if "keys" in cache else keys
            return x @ cache["keys"].transpose([1, 0])

    layer, mine, eager = Hot(), {}, {}
    layer.eval()
    with paddle.no_grad():
        for n in range(6):
            expected = type(layer).forward.__wrapped__(layer, X + n, eager)
            same(layer(X + n, mine), expected)
            same(mine, eager)
    served(captures=3)


def test_a_cache_that_the_layer_holds_as_well() -> None:
    class Hot(Block):
        def __init__(self) -> None:
            super().__init__()
            self.cache = Cache(Joins)

        @inference()
        def forward(self, x: Any, cache: Cache) -> Any:
            cache.update(x)
            return x + self.cache.rows

    layer = Hot()
    with paddle.no_grad():
        same(layer(X, layer.cache), X + 2)
        same(layer(X, layer.cache), X + 4)
    eagerly("an object that its layer or its code holds too")


def test_a_write_into_a_tensor_of_a_cache_is_a_change_of_it() -> None:
    @inference()
    def run(x: Any, cache: Cache) -> Any:
        cache.keys[:2] = x
        return cache.keys + 1

    keys = paddle.zeros([4, 4])
    cache = Cache(Joins, keys=keys)
    with paddle.no_grad():
        for n in range(3):
            same(run(X + n, cache), paddle.concat([X + n, paddle.zeros([2, 4])]) + 1)
            same(keys, paddle.concat([X + n, paddle.zeros([2, 4])]))
    assert cache.keys is keys and counts()["hits"] == 2
