"""Methods that decide which tensors require a gradient: what is left behind is what the eager method leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import inference


def required(tensor: Any) -> bool:
    return bool(tensor.requires_grad) if hasattr(tensor, "untyped_storage") else not tensor.stop_gradient


def require(tensor: Any, flag: bool = True) -> Any:
    """As code of either framework has it."""
    if hasattr(tensor, "untyped_storage"):
        tensor.requires_grad_(flag)
    else:
        tensor.stop_gradient = not flag
    return tensor


def made(framework: Any, flag: bool) -> Any:
    return require(framework.ones([2, 4]), flag)


def on(layer: Any, x: Any) -> Any:
    require(x)
    return layer.linear(x)


def off(layer: Any, x: Any) -> Any:
    require(x, False)
    return layer.linear(x)


def on_and_off(layer: Any, x: Any) -> Any:
    y = layer.linear(require(x))
    require(x, False)
    return y


def off_and_on(layer: Any, x: Any) -> Any:
    y = layer.linear(require(x, False))
    require(x)
    return y


def of_its_result(layer: Any, x: Any) -> Any:
    return require(layer.linear(x))


def of_a_weight(layer: Any, x: Any) -> Any:
    require(layer.linear.weight, False)
    return layer.linear(x)


METHODS: list[Callable[[Any, Any], Any]] = [on, off, on_and_off, off_and_on, of_its_result, of_a_weight]


@pytest.mark.parametrize("order", ["with", "without"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_what_requires_a_gradient_after_a_call(framework: Any, method: Callable[[Any, Any], Any], order: str) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)

        forward = inference(method)

    layer = Layer()
    layer.eval()
    flags = [False, False, True, True, False]
    with framework.no_grad():
        for flag in flags if order == "without" else [not each for each in flags]:
            found = []
            for function in (lambda x: method(layer, x), layer):
                require(layer.linear.weight)
                x = made(framework, flag)
                y = function(x)
                found.append((required(x), required(y), required(layer.linear.weight)))
            assert found[0] == found[1]
    if method in (on, off_and_on):
        assert counts()["eager_calls"] == 0
