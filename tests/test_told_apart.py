"""Whether an argument is the very object that a method has from elsewhere: no constant of a static model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import counts, eagerly, layer_class, served

from hybrid_infer import inference

LISTED, NOTHING = [1.0, 2.0], object()


class Settings:
    table = LISTED


def of_a_global(x: Any, given: Any) -> Any:
    return x * (2 if given is LISTED else 3)


def of_a_class(x: Any, given: Any) -> Any:
    return x * (2 if Settings.table is given else 3)


def of_what_it_calls(x: Any, given: Any) -> Any:
    return of_a_global(x, given) + 1


@pytest.mark.parametrize("function", [of_a_global, of_a_class, of_what_it_calls])
def test_a_list_of_the_code_s(framework: Any, function: Callable[..., Any]) -> None:
    hot, x = inference(function, verify="off"), framework.ones([2])
    for given in ([*LISTED], LISTED, [*LISTED]):
        assert hot(x, given).numpy().tolist() == function(x, given).numpy().tolist()
    eagerly("whether `given` is an object that it has from elsewhere")


@pytest.mark.parametrize("kind", ["list", "dict", "tensor"])
def test_what_its_layer_holds(framework: Any, kind: str) -> None:
    def made() -> Any:
        return {"list": [1], "dict": {"a": 1}, "tensor": framework.ones([2])}[kind]

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = [made()]

        def forward(self, x: Any, given: Any = None) -> Any:
            if given is None:
                return x * 5
            if given is not self.held[0]:
                return x * 2
            return x * 3

    layer, x = Layer(), framework.ones([2])
    hot = inference(layer.forward, verify="off")
    other = made()
    with framework.no_grad():
        for given in (other, layer.held[0], other):
            assert hot(x, given).numpy().tolist() == layer.forward(x, given).numpy().tolist()
        assert counts()["hits"] == 0
        for _ in range(2):
            assert hot(x).numpy().tolist() == [5, 5]
    assert counts()["captures"] == 1


def otherwise(x: Any, given: Any, other: Any) -> Any:
    kind = type(given)
    if given is NOTHING or given is None or given is other or kind is dict or given is type(other):
        return x
    return x * len(given)


def test_what_tells_nothing_apart_of_which_there_may_be_two_is_served(framework: Any) -> None:
    hot, x = inference(otherwise, verify="off"), framework.ones([2])
    for given in ([1, 2], [1, 2]):
        assert hot(x, given, [3]).numpy().tolist() == [2, 2]
    served(1)
