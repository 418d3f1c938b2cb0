"""A default device decides where the code of a method creates tensors; it is no reason to step aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode
from torch_support import Block, counts, same, twice

from hybrid_infer import _background, inference, stats

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Counting(Block):
    """Creates a tensor where the default device says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + torch.arange(4)

    def count(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x), torch.arange(x.shape[1]) * 2


def made() -> torch.nn.Module:
    """A decorated layer, of a class whose store is this test's."""
    hot: type[Counting] = type("Hot", (Counting,), {"forward": inference(fallback="error")(Counting.forward)})
    return hot()


@pytest.fixture(autouse=True)
def nowhere() -> Iterator[None]:
    yield
    torch.set_default_device(None)


def test_a_default_device_is_served() -> None:
    layer = made()
    torch.set_default_device("cpu")
    twice(layer, Counting.forward.__get__(layer), X)
    assert counts()["hits"] == 1 and counts()["captures"] == 1


def test_each_device_has_its_own_version() -> None:
    layer = made()
    expected = Counting.forward(layer, X).detach()
    with torch.no_grad():
        for _ in range(2):
            same(layer(X), expected)
            with torch.device("cpu"):
                same(layer(X), expected)
    assert counts()["captures"] == 2 and counts()["hits"] == 2


def test_the_next_instance_finds_the_version_of_its_device() -> None:
    torch.set_default_device("cpu")
    first = made()
    for layer in (first, type(first)()):
        twice(layer, Counting.forward.__get__(layer), X)
    assert counts()["captures"] == 1


def test_results_lie_where_the_code_creates_them() -> None:
    layer = Counting()
    hot = inference(layer.count)
    with torch.no_grad(), torch.device("meta"):
        for _ in range(3):
            found, created = hot(X)
            same(found, layer.linear(X))
            assert created.device.type == "meta"
    twice(hot, layer.count, X)


def test_what_is_compiled_in_the_background_is_for_the_device_of_the_call() -> None:
    layer = Counting()
    hot = inference(layer.forward, background=True)
    with torch.no_grad(), torch.device("cpu"):
        expected = layer(X)
        same(hot(X), expected)
        _background.wait()
        same(hot(X), expected)
    assert counts()["hits"] == 1


def test_any_other_mode_is_stepped_aside_for_and_named() -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    layer = made()
    with torch.no_grad(), torch.device("cpu"), Mode():
        same(layer(X), Counting.forward(layer, X))
    assert counts()["captures"] == counts()["hits"] == 0
    assert next(iter(stats().values()))["fallbacks"] == {
        "the function mode Mode is on, which is to see every operation": 1
    }


def test_so_is_what_sees_every_operation_or_every_module() -> None:
    layer = made()
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with torch.no_grad():
            layer(X)
    finally:
        hook.remove()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(X)
    assert counter.get_total_flops() and counts()["captures"] == 0
    [reasons] = [each["fallbacks"] for each in stats().values()]
    assert any("the dispatch mode" in each for each in reasons) and any("hooks for every" in each for each in reasons)


def test_so_are_weights_that_are_computed_once_for_several_calls() -> None:
    """Inside of `parametrize.cached()` a changed weight counts from its end on."""
    hot, twin = made(), made()
    twin.load_state_dict(hot.state_dict())
    for layer in (hot, twin):
        parametrize.register_parametrization(layer.linear, "weight", Halved())
    weights = [layer.linear.parametrizations.weight.original for layer in (hot, twin)]
    with torch.no_grad():
        same(hot(X), Counting.forward(twin, X))
        before = counts()["hits"] + counts()["captures"]
        assert counts()["captures"] == 1
        with parametrize.cached():
            for _ in range(3):
                same(hot(X), Counting.forward(twin, X))
                for weight in weights:
                    weight.mul_(3)
        assert counts()["hits"] + counts()["captures"] == before
        same(hot(X), Counting.forward(twin, X))
    assert counts()["hits"] + counts()["captures"] == before + 1
    [reasons] = [each["fallbacks"] for each in stats().values()]
    assert any("parametrize.cached()" in each for each in reasons)


class Halved(torch.nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight / 2
