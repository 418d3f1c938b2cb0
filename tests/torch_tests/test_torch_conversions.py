"""Methods that move or convert layers, which mostly are where they are to be: ``self.expert.to(x.device)``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, eagerly, same, served

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def net(moves: Callable[[Any, torch.Tensor], Any]) -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)])
            self.norm = torch.nn.LayerNorm(4)

        def eager(self, x: torch.Tensor) -> torch.Tensor:
            moves(self, x)
            for expert in self.experts:
                x = expert(x)
            return self.norm(x)  # type: ignore[no-any-return]

        forward = inference(eager)

    return Net().eval()


STAYS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "device": lambda net, x: net.experts.to(x.device),
    "by name": lambda net, x: net.norm.to("cpu"),
    "type": lambda net, x: net.experts[0].to(x.dtype),
    "device and type": lambda net, x: net.to(device=x.device, dtype=x.dtype, non_blocking=True),
    "of a tensor": lambda net, x: net.norm.to(x),
    "float": lambda net, x: net.float(),
    "cpu": lambda net, x: net.cpu(),
    "any type": lambda net, x: net.norm.type(x.dtype),
}


@pytest.mark.parametrize("way", STAYS)
def test_what_stays_as_it_is_is_served(way: str) -> None:
    layer, x = net(STAYS[way]), X
    weights = [*layer.parameters(), *layer.buffers()]
    with torch.no_grad():
        for n in range(4):
            same(layer(x + n), layer.eager(x + n))
            layer.norm.weight.mul_(1.5)
    served(captures=1)
    assert all(a is b for a, b in zip(weights, [*layer.parameters(), *layer.buffers()], strict=True))


CHANGES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "type": lambda net, x: net.experts.to(torch.float64).to(torch.float32),
    "double": lambda net, x: net.norm.double().float(),
    "format": lambda net, x: net.to(memory_format=torch.channels_last),
    "any type": lambda net, x: net.norm.type(torch.float64).type("torch.FloatTensor"),
}


@pytest.mark.parametrize("way", CHANGES)
def test_what_is_another_runs_eagerly(way: str) -> None:
    layer = net(CHANGES[way])
    with torch.no_grad():
        for n in range(3):
            same(layer(X + n), layer.eager(X + n))
    eagerly("it moves or converts the weights of a layer of class")


def test_a_layer_of_another_type_is_converted() -> None:
    layer = net(lambda net, x: net.to(x.dtype))
    eager = copy.deepcopy(layer)
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64, torch.float64, torch.float32):
            same(layer(X.to(dtype)), eager.eager(X.to(dtype)))
            assert layer.norm.weight.dtype == dtype
    assert counts()["hits"] == 0


def test_what_the_program_applies_itself_is_not_left_out() -> None:
    layer = net(lambda net, x: net.norm._apply(lambda t: t.mul_(2)))
    eager = copy.deepcopy(layer)
    with torch.no_grad():
        for n in range(3):
            same(layer(X + n), eager.eager(X + n))
            same(layer.norm.weight, eager.norm.weight)
