"""Sublayers that are what ``torch.compile(layer)`` gives, or a module of TorchScript."""

from __future__ import annotations

import copy
import threading
import warnings
from typing import Any

import pytest
import torch
from forks import forked
from torch_support import Block, counts, eagerly, same, served

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Scaled(Block):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.parts = torch.nn.ModuleList([torch.nn.Dropout(0.5)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts[0](super().forward(x)) * self.scale


def net(part: Any) -> Any:
    """Of a class of its own, with static models of its own."""

    class Around(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.part = torch.nn.Linear(4, 4), part

        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(self.linear(x)) + 1  # type: ignore[no-any-return]

        def eagerly(self, x: torch.Tensor) -> torch.Tensor:
            inside = getattr(self.part, "_orig_mod", self.part)
            return inside(self.linear(x)) + 1  # type: ignore[no-any-return]

    return Around()


def ask(layer: Any, times: int = 3) -> None:
    with torch.no_grad():
        for n in range(times):
            same(layer(X + n), layer.eagerly(X + n))


WAYS = {
    "compile": lambda layer: torch.compile(layer, backend="eager"),
    "disable": torch.compiler.disable,
    "of a framework's layer": lambda layer: torch.compile(layer.linear, backend="eager"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_layer_that_is_to_be_compiled_is_looked_into(way: str) -> None:
    layer = net(WAYS[way](Scaled())).eval()
    ask(layer)
    served(captures=1, bindings=1)
    with torch.no_grad():
        for weight in layer.part.parameters():
            weight.mul_(1.5)
    ask(layer)
    served(captures=1, bindings=2)
    ask(copy.deepcopy(layer))
    served(captures=1)
    assert isinstance(layer.part, torch._dynamo.eval_frame.OptimizedModule)


def test_what_is_read_inside_counts() -> None:
    layer = net(torch.compile(Scaled(), backend="eager")).eval()
    ask(layer)
    layer.part._orig_mod.scale = 3.0
    ask(layer)
    served(captures=2)
    layer.part.scale = 4.0  # which it hands on
    ask(layer)
    served(captures=3)


def test_another_layer_in_its_place_and_another_forward() -> None:
    layer = net(torch.compile(Scaled(), backend="eager")).eval()
    ask(layer)
    layer.part = Scaled().eval()
    ask(layer)
    served(captures=2)
    layer.part = torch.compile(Scaled().eval(), backend="eager")
    ask(layer)
    served(captures=2)
    hits = counts()["hits"]
    part = layer.part._orig_mod
    layer.part.forward = lambda x: part(x) * 7
    with torch.no_grad():
        for n in range(3):
            same(layer(X + n), part(layer.linear(X + n)) * 7 + 1)
    assert counts()["hits"] == hits


def test_training_mode_is_that_of_the_layer_inside() -> None:
    layer = net(torch.compile(Scaled(), backend="eager")).eval()
    ask(layer)
    hits = counts()["hits"]
    layer.part.train()
    with torch.no_grad():
        found = [layer(X) for _ in range(3)]
    assert counts()["hits"] == hits and not torch.equal(found[0], found[1])
    layer.eval()
    ask(layer)
    assert counts()["hits"] > hits


def test_threads() -> None:
    layer, faults = net(torch.compile(Scaled(), backend="eager")).eval(), []

    def work() -> None:
        try:
            ask(layer, 20)
        except BaseException as fault:
            faults.append(fault)

    ask(layer)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not faults
    served(captures=1)


@pytest.mark.parametrize("make", [torch.jit.script, lambda layer: torch.jit.trace(layer, X)], ids=["script", "trace"])
def test_a_module_of_torchscript_is_named(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = net(make(Block().eval())).eval()
    ask(layer)
    eagerly("self.part is a module of TorchScript (", "which holds its weights outside of Python")


SCRIPT = """
import torch
from hybrid_infer import inference, stats

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), backend="eager")

    @inference(backend="onnxruntime")
    def forward(self, x):
        return self.part(x) + 1

layer = Net().eval()
with torch.no_grad():
    for n in range(3):
        x = torch.randn(2, 4)
        assert torch.allclose(layer(x), layer.part._orig_mod(x) + 1, atol=1e-6)
found = stats()["__main__.Net.forward"]
print(found["captures"], found["hits"], found["fallbacks"])
"""


def test_the_next_process_captures_nothing() -> None:
    assert forked("torch", SCRIPT) == "1 2 {}"
    assert forked("torch", SCRIPT) == "0 3 {}"


def halved(graph: Any, examples: Any) -> Any:
    """A backend that computes otherwise, as those do that quantise."""
    return lambda *given: tuple(each.half().float() * 2 for each in graph(*given))


def test_a_backend_that_is_not_torchs_is_left_to_eager_code() -> None:
    layer = net(torch.compile(torch.nn.Linear(4, 4), backend="eager"))
    ask(layer)
    served(captures=1)
    hits = counts()["hits"]
    layer.part = torch.compile(layer.part._orig_mod, backend=halved)
    with torch.no_grad():
        for n in range(3):
            same(layer(X + n), layer.part(layer.linear(X + n)) + 1)
    assert counts()["hits"] == hits
    assert any("self.part is compiled by halved" in each for each in counts()["fallbacks"]), counts()["fallbacks"]
