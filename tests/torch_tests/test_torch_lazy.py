"""Lazy layers (`torch.nn.LazyLinear`), which get their weights by their first call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, same

from hybrid_infer import _background, inference, warmup

X = torch.linspace(-1, 1, 18).reshape(3, 6)


def layers() -> Any:
    return torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.ReLU(), torch.nn.LazyLinear(4)).eval()


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = layers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x) * 2  # type: ignore[no-any-return]


def of_class() -> Any:
    class Hot(Net):
        forward = inference()(Net.forward)

    return Hot().eval()


def of_function() -> Any:
    part = layers()
    return inference(lambda x: part(x) * 2), part


MAKE: dict[str, Callable[[], Any]] = {
    "instance": lambda: inference(layers()), "class": of_class, "error": lambda: inference(layers(), fallback="error")
}  # fmt: skip


@pytest.mark.parametrize("name", MAKE)
def test_the_first_call_is_eager_and_the_next_one_is_captured(name: str) -> None:
    layer = MAKE[name]()
    with torch.no_grad():
        first = layer(X)
        assert counts()["captures"] == 0 and counts()["eager_calls"] == 1
        (reason,) = counts()["fallbacks"]
        assert reason.endswith("weight has no shape before the first call of its layer"), reason
        for _ in range(3):
            same(layer(X), first)
        same(layer(X[:2]), first[:2])
    assert (counts()["captures"], counts()["hits"], counts()["eager_calls"]) == (2, 2, 1)


def test_a_function_around_one() -> None:
    function, part = of_function()
    with torch.no_grad():
        for n in range(4):
            same(function(X + n), part(X + n) * 2)
    assert (counts()["captures"], counts()["eager_calls"]) == (1, 1)


def test_weights_that_are_loaded_first() -> None:
    eager, layer = layers(), inference(layers(), fallback="error")
    with torch.no_grad():
        eager(X)
        layer.load_state_dict(eager.state_dict())
        for n in range(4):
            same(layer(X + n), eager(X + n))
    # The layers become others in their first call: what they were before, with hooks, is left to eager.
    assert counts()["hits"] >= 2 and counts()["eager_calls"] <= 1, counts()


def test_in_the_background() -> None:
    layer = inference(layers(), background=True)
    with torch.no_grad():
        first = layer(X)
        _background.wait()
        for _ in range(3):
            same(layer(X), first)
    assert counts()["hits"] >= 1, counts()


def test_ahead_of_the_first_call() -> None:
    layer = inference(layers())
    with torch.no_grad():
        warmup(layer, X)
        first = layer(X)
        for _ in range(3):
            same(layer(X), first)
    assert counts()["hits"] >= 2


def test_threads_meet_one_that_has_been_called() -> None:
    layer, found = inference(layers()), []
    with torch.no_grad():
        first = layer(X)

    def work() -> None:
        with torch.no_grad():
            found.extend(layer(X) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 15
    for each in found:
        same(each, first)
