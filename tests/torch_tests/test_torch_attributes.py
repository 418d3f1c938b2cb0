"""Values of attributes that a capture read are part of what a version is valid for; the others are not."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch_support import counts, same, served, twice

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Inner(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Other(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


class Config:
    def __init__(self) -> None:
        self.shift, self.nested, self.unread = 1.0, SimpleNamespace(power=2), "u"


class Layer(torch.nn.Module):
    slope = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.scale, self.unread, self.index = 2.0, 0, 0
        self.factors, self.table = [1.0, 2.0], {"bias": 0.5}
        self.config = Config()
        self.steps = np.arange(4, dtype=np.float32)
        self.activation = torch.relu

    def tail(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        y = self.activation(self.inner(x)) * self.scale * self.factors[1] + self.table["bias"] + self.slope
        y = y + self.config.shift**self.config.nested.power + torch.from_numpy(self.steps)
        return self.tail(y) if getattr(self, "optional", None) is None else y


def hot() -> Any:
    """The class with a decorated forward that no other test has called."""

    class Hot(Layer):
        forward = inference(fallback="error", max_versions=64)(Layer.compute)

    return Hot


def _table(layer: Layer) -> None:
    layer.table["bias"] = 9.0


def _config(layer: Layer) -> None:
    layer.config.shift = 3.0


def _nested(layer: Layer) -> None:
    layer.config.nested.power = 5
    layer.config.shift = 2.0


def _numpy(layer: Layer) -> None:
    layer.steps[2] = 77.0


def _method(layer: Layer) -> None:
    layer.tail = lambda x: x - 5  # type: ignore[method-assign]


CHANGES: dict[str, Any] = {
    "a number": lambda layer: setattr(layer, "scale", 3.0),
    "a list's element": lambda layer: layer.factors.__setitem__(1, 4.0),
    "a dict's value": _table,
    "a config's field": _config,
    "a field below it": _nested,
    "a NumPy table's element": _numpy,
    "a function": lambda layer: setattr(layer, "activation", torch.sigmoid),
    "a sublayer of another class": lambda layer: setattr(layer, "inner", Other()),
    "a class attribute hidden by the instance": lambda layer: setattr(layer, "slope", 0.75),
    "an attribute that was missing": lambda layer: setattr(layer, "optional", 1),
    "a method on the instance": _method,
}


def test_each_change_of_what_was_read_is_seen_by_the_next_call() -> None:
    layer = hot()()
    twice(layer, layer.compute, X)
    for name, change in CHANGES.items():
        if name == "a method on the instance":
            del layer.optional
        before = layer.compute(X)
        change(layer)
        assert not torch.allclose(before, layer.compute(X)), name
        twice(layer, layer.compute, X)
    assert counts()["eager_calls"] == 0
    assert counts()["captures"] <= 1 + len(CHANGES)


def test_what_was_not_read_splits_nothing() -> None:
    kind = hot()
    layers = [kind() for _ in range(3)]
    for n, layer in enumerate(layers):
        layer.index, layer.unread, layer.config.unread = n, n, f"u{n}"
        twice(layer, layer.compute, X)
    layers[0].unread = "changed"  # type: ignore[assignment]
    layers[0].config.unread = "changed"
    layers[0].another = object()  # type: ignore[assignment]
    twice(layers[0], layers[0].compute, X)
    served(captures=1, bindings=3)


def test_a_value_that_comes_back_finds_its_version() -> None:
    layer = hot()()
    for scale in (2.0, 5.0) * 5:
        layer.scale = float(str(scale))
        twice(layer, layer.compute, X)
    served(captures=2, bindings=2)


def test_patching_the_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = hot()()
    twice(layer, layer.compute, X)
    monkeypatch.setattr(Layer, "tail", lambda self, x: x * 100)
    twice(layer, layer.compute, X)
    monkeypatch.setattr(Layer, "slope", 8.0)
    twice(layer, layer.compute, X)
    monkeypatch.setattr(Inner, "forward", lambda self, x: x - 40)
    twice(layer, layer.compute, X)
    served(captures=4)


class Hooked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * 2


def hooked() -> Any:
    class Hot(Hooked):
        forward = inference()(Hooked.compute)

    return Hot()


def test_a_hook_added_to_a_sublayer_is_honoured() -> None:
    layer, seen = hooked(), []
    twice(layer, layer.compute, X)
    handle = layer.inner.register_forward_hook(lambda module, args, result: seen.append(1) or result + 100)
    with torch.no_grad():
        for _ in range(2):
            same(layer(X), layer.compute(X))
    assert len(seen) == 4 and counts()["eager_calls"] == 2
    handle.remove()
    del seen[:]
    twice(layer, layer.compute, X)
    assert not seen and counts()["captures"] == 1 and counts()["eager_calls"] == 2


def test_hooks_of_the_layer_itself_run_once_around_the_engine() -> None:
    layer, seen = hooked(), []
    layer.register_forward_pre_hook(lambda module, args: seen.append("before"))
    layer.register_forward_hook(lambda module, args, result: seen.append("after"))
    with torch.no_grad():
        for _ in range(3):
            layer(X)
    assert seen == ["before", "after"] * 3
    served(captures=1)


def test_the_training_flag_counts_only_where_it_is_read() -> None:
    layer = hot()()
    twice(layer, layer.compute, X)
    layer.eval()
    twice(layer, layer.compute, X)
    served(captures=1)


def test_a_hook_that_was_there_first_can_be_removed() -> None:
    layer = hooked()
    handle = layer.inner.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    twice(layer, layer.compute, X)
    assert "hook" in next(iter(counts()["fallbacks"]))
    handle.remove()
    twice(layer, layer.compute, X)
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 2


class Settings:
    def __init__(self) -> None:
        self.scale = 2.0


class Copying(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = Settings()

    @inference(fallback="error")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        settings = copy.deepcopy(self.settings)
        settings.scale += 1
        return x * settings.scale


def test_what_python_notes_on_a_class_when_an_instance_is_copied_is_no_change_of_it() -> None:
    layer, x = Copying(), torch.ones(2, 4)
    twice(layer, lambda x: x * 3, x)
    layer.settings.scale = 4.0
    twice(layer, lambda x: x * 5, x)
    served(captures=2)
