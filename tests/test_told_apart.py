"""Whether an argument is the very object that a method has from elsewhere: no constant of a static model."""

from __future__ import annotations

import types
from collections import deque
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


class Derived(Settings):
    pass


HELD = types.SimpleNamespace(table=LISTED, queue=deque([1.0]), shown=types.MappingProxyType({"a": 1}), pair=(1.0, 2.0))


def of_an_object(x: Any, given: Any) -> Any:
    return x * (2 if given is HELD.table else 3)


def of_an_inherited_attribute(x: Any, given: Any) -> Any:
    return x * (2 if given is Derived.table else 3)


def of_a_queue(x: Any, given: Any) -> Any:
    return x * (2 if HELD.queue is given else 3)


def of_a_proxy(x: Any, given: Any) -> Any:
    return x * (2 if given is HELD.shown else 3)


def of_a_tuple(x: Any, given: Any) -> Any:
    return x * (2 if given is HELD.pair else 3)


def enclosing(held: Any) -> Callable[..., Any]:
    def of_an_enclosing_function(x: Any, given: Any) -> Any:
        return x * (2 if given is held else 3)

    return of_an_enclosing_function


@pytest.mark.parametrize(
    ("function", "held"),
    [(of_an_object, HELD.table), (of_an_inherited_attribute, LISTED), (of_a_queue, HELD.queue),
     (of_a_proxy, HELD.shown), (of_a_tuple, HELD.pair), (enclosing(LISTED), LISTED)],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_what_the_code_has_from_elsewhere(framework: Any, function: Callable[..., Any], held: Any) -> None:
    def other() -> Any:
        return types.MappingProxyType({**held}) if isinstance(held, types.MappingProxyType) else type(held)([*held])

    hot, x = inference(function, verify="off"), framework.ones([2])
    for given in (other(), held, other()):
        assert hot(x, given).numpy().tolist() == function(x, given).numpy().tolist()
    eagerly("whether `given` is an object that it has from elsewhere")


@pytest.mark.parametrize("kind", ["attribute", "of the class", "buffer"])
def test_what_has_nothing_is_no_object_until_it_has_one(framework: Any, kind: str) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        if kind == "of the class":
            mask = None

        def __init__(self) -> None:
            super().__init__()
            if kind == "attribute":
                self.mask = None
            if kind == "buffer":
                self.register_buffer("mask", None)

        def forward(self, x: Any, mask: Any) -> Any:
            return x * 2 if self.is_held(mask) else x * 3 + mask

        def is_held(self, mask: Any) -> bool:
            def asked() -> bool:
                return mask is self.mask

            return mask is self.mask and asked()

    layer, x, mask = Layer(), framework.ones([2]), framework.ones([2])
    hot = inference(layer.forward, verify="off")
    with framework.no_grad():
        for _ in range(2):
            assert hot(x, mask).numpy().tolist() == [4, 4]
        served(1)
        layer.mask = mask
        held = layer.mask is mask  # a class's attribute comes before the tensors that a layer of Paddle's is given
        for _ in range(2):
            assert hot(x, mask).numpy().tolist() == ([2, 2] if held else [4, 4])


def compared_inside(x: Any, key: Any) -> Any:
    def same() -> bool:
        return key is x

    return x * 2 if same() else x + key


def test_arguments_compared_with_each_other_by_an_inner_function_are_told_apart(framework: Any) -> None:
    hot, x = inference(compared_inside, verify="off"), framework.ones([2])
    for key in (x, framework.ones([2]), x, framework.ones([2])):
        assert hot(x, key).numpy().tolist() == [2, 2]
    served(2)
