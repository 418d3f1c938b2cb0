"""Layers whose ``forward`` is a ``functools.partial``, as where accelerate has put a hook around them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, eagerly, same, served

from hybrid_infer import HybridInferError, inference, to_static

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Hook:
    """As accelerate's."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def before(self, layer: Any, *args: Any) -> Any:
        return args

    def after(self, layer: Any, found: Any) -> Any:
        return found * self.factor


class Counts(Hook):
    calls = 0

    def after(self, layer: Any, found: Any) -> Any:
        self.calls += 1
        return found + self.calls


class Offloads(Hook):
    """Keeps the weights elsewhere between calls."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.weights = {name: weight.detach().clone() for name, weight in layer.named_parameters()}
        self.after(layer, X)

    def before(self, layer: Any, *args: Any) -> Any:
        for name, weight in self.weights.items():
            setattr(layer, name, torch.nn.Parameter(weight))
        return args

    def after(self, layer: Any, found: Any) -> Any:
        for name, weight in self.weights.items():
            setattr(layer, name, torch.nn.Parameter(weight.to("meta")))
        return found


def put(layer: Any, hook: Hook) -> Any:
    layer.hook, layer.old_forward = hook, layer.forward

    def new_forward(layer: Any, *args: Any, **kwargs: Any) -> Any:
        args = layer.hook.before(layer, *args)
        return layer.hook.after(layer, layer.old_forward(*args, **kwargs))

    layer.forward = functools.update_wrapper(functools.partial(new_forward, layer), layer.old_forward)
    return layer


def linear() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 4).eval()


def ask(make: Callable[[], Any], wrap: Any = inference, times: int = 3) -> Any:
    layer, eager = wrap(make()), make()
    with torch.no_grad():
        for n in range(times):
            same(layer(X + n), eager(X + n))
    return layer


def test_a_hook_that_does_nothing_is_served() -> None:
    layer = ask(lambda: put(linear(), Hook()))
    served(captures=1)
    layer.hook.factor = 3.0
    with torch.no_grad():
        same(layer(X), layer.old_forward(X) * 3)
    served(captures=2)
    layer.forward = layer.old_forward  # as where hooks are removed
    with torch.no_grad():
        same(layer(X), torch.nn.functional.linear(X, layer.weight, layer.bias))


def test_around_a_sublayer() -> None:
    ask(lambda: torch.nn.Sequential(put(linear(), Hook(2.0)), torch.nn.ReLU()).eval())
    served(captures=1)


def test_one_that_counts_calls() -> None:
    layer = ask(lambda: put(linear(), Counts()), times=4)
    assert layer.hook.calls == 4


def test_weights_that_are_elsewhere_between_calls() -> None:
    def make() -> Any:
        layer = linear()
        return put(layer, Offloads(layer))

    layer = ask(make)
    eagerly("self.weight")
    assert layer.weight.device.type == "meta"


def test_to_static() -> None:
    ask(lambda: put(linear(), Hook(2.0)), to_static)
    assert counts()["hits"] == 2


@pytest.mark.parametrize(
    "forward",
    [
        lambda layer: functools.partial(lambda other, x: x, linear()),
        lambda layer: functools.partial(layer.forward, x=X),
        lambda layer: lambda x: x,
    ],
    ids=["of another layer", "with an argument", "a function"],
)
def test_what_is_no_method_of_the_layer_is_refused(forward: Any) -> None:
    layer = linear()
    layer.forward = forward(layer)
    with pytest.raises(HybridInferError, match="not a method of the layer"):
        inference(layer)
