"""What another thread changes while a static model is made or loaded counts from the next call on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts

from hybrid_infer import inference
from hybrid_infer.backends import onnxruntime
from hybrid_infer.frontends.torch import TorchFrontend

X = torch.ones(2, 4)
TABLE = {"of the layer": {"factor": 1.0}}


class Layer(torch.nn.Module):
    def __init__(self, value: float = 1.0, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4,), value))
        self.scale = scale
        self.options = {"shift": [0.0]}
        self.eval()

    def forward(self, x: Any) -> Any:
        return x * self.weight * self.scale + self.options["shift"][0]


def hot(**options: Any) -> type[Layer]:
    class Hot(Layer):
        forward = inference(verify="off", **options)(Layer.forward)

    return Hot


def written(layer: Layer) -> None:
    layer.weight.data.copy_(torch.full((4,), 7.0))


def stepped(layer: Layer) -> None:
    with torch.no_grad():
        layer.weight.mul_(7.0)


def replaced(layer: Layer) -> None:
    layer.weight = torch.nn.Parameter(torch.full((4,), 7.0))


def swapped(layer: Layer) -> None:
    layer.weight.data = torch.full((4,), 7.0)


def scaled(layer: Layer) -> None:
    layer.scale = 7.0


def shifted(layer: Layer) -> None:
    layer.options["shift"][0] = 6.0


WEIGHTS = [written, stepped, replaced, swapped]
ATTRIBUTES = [scaled, shifted]


def once(change: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a change behind its first call, as if another thread had made it in the middle of it."""
    left = [change]

    def changing(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if left:
            left.pop()()
        return found

    return changing


@pytest.mark.parametrize("change", WEIGHTS + ATTRIBUTES)
@pytest.mark.parametrize("weights", ["bound", "live", "auto"])
def test_a_change_while_a_program_is_loaded(change: Any, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = hot(weights=weights)()
    with torch.no_grad():
        with monkeypatch.context() as patch:
            load = onnxruntime.OnnxRuntime.load
            patch.setattr(onnxruntime.OnnxRuntime, "load", once(lambda: change(layer), load))
            layer(X)
        for _ in range(2):
            assert torch.equal(layer(X), torch.full((2, 4), 7.0))
    assert counts()["eager_calls"] <= 1 and counts()["hits"] >= 1


@pytest.mark.parametrize("change", WEIGHTS + ATTRIBUTES)
def test_a_change_while_another_instance_is_bound(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = hot()
    first, second = kind(), kind()
    with torch.no_grad():
        first(X)
        with monkeypatch.context() as patch:
            load = onnxruntime.OnnxRuntime.load
            patch.setattr(onnxruntime.OnnxRuntime, "load", once(lambda: change(second), load))
            second(X)
        for _ in range(2):
            assert torch.equal(second(X), torch.full((2, 4), 7.0))


@pytest.mark.parametrize("change", WEIGHTS + ATTRIBUTES)
def test_a_change_while_it_is_captured(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = hot()
    layer = kind()
    with torch.no_grad():
        with monkeypatch.context() as patch:
            patch.setattr(TorchFrontend, "capture", once(lambda: change(layer), TorchFrontend.capture))
            layer(X)
        for _ in range(2):
            assert torch.equal(layer(X), torch.full((2, 4), 7.0))
        assert torch.equal(kind()(X), X)
    assert counts()["hits"] >= 1


def test_a_constant_tensor_that_changes_while_it_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.ones(4)

    @inference(verify="off")
    def run(x: Any) -> Any:
        return x * table

    with monkeypatch.context() as patch:
        patch.setattr(TorchFrontend, "capture", once(lambda: table.mul_(7.0), TorchFrontend.capture))
        run(X)
    for _ in range(2):
        assert torch.equal(run(X), X * 7.0)


def test_a_function_that_changes_while_it_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    @inference(verify="off")
    def run(x: Any) -> Any:
        return x * TABLE["of the layer"]["factor"]

    monkeypatch.setitem(TABLE, "of the layer", {"factor": 1.0})
    with monkeypatch.context() as patch:
        change = lambda: TABLE["of the layer"].update(factor=7.0)  # noqa: E731
        patch.setattr(TorchFrontend, "capture", once(change, TorchFrontend.capture))
        run(X)
    for _ in range(2):
        assert torch.equal(run(X), X * 7.0)
