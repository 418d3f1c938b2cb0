"""Methods, and functions with arguments, that a layer keeps as attributes: which layer they work on counts."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import inference


def method(part: Any) -> Any:
    return part.compute


def partial(part: Any) -> Any:
    return functools.partial(compute, part)


def by_name(part: Any) -> Any:
    return functools.partial(compute, part=part)


def of_a_method(part: Any) -> Any:
    return functools.partial(part.compute)


def in_a_list(part: Any) -> Any:
    return functools.partial(first, [part.compute])


def in_a_queue(part: Any) -> Any:
    return deque([part.compute])


def compute(part: Any, x: Any = None) -> Any:
    return part.compute(x)


def first(functions: Any, x: Any) -> Any:
    return functions[0](x)


KEPT = [method, partial, by_name, of_a_method, in_a_list, in_a_queue]


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.__name__)
def test_it_is_the_layer_that_it_is_bound_to(framework: Any, kept: Callable[[Any], Any]) -> None:
    class Part(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)

        def compute(self, x: Any) -> Any:
            return self.linear(x)

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = Part(), Part()
            self.kept = kept(self.one)

        @inference(backend="onnxruntime", verify="off")
        def hot(self, x: Any) -> Any:
            return (self.kept(x=x) if callable(self.kept) else first(self.kept, x)) * 2

    def right(layer: Any, part: Any) -> None:
        with framework.no_grad():
            found, expected = layer.hot(x), part.compute(x) * 2
        assert float((found - expected).abs().max()) < 1e-5

    layer, x = Layer().eval(), framework.ones([2, 4])
    right(layer, layer.one)
    right(layer, layer.one)
    layer.kept = kept(layer.other)
    right(layer, layer.other)
    another = Layer().eval()
    right(another, another.one)
    another.kept = kept(another.other)
    right(another, another.other)
    if kept is method:
        assert counts()["captures"] == 2 and counts()["eager_calls"] == 0, counts()
        outside = Part().eval()
        another.kept = kept(outside)
        right(another, outside)
        assert counts()["eager_calls"] == 1, counts()
