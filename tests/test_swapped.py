"""An object that is given another class, or another dict of attributes, is looked at anew."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from support import layer_class

from hybrid_infer import inference, stats


def classes(framework: Any, base: type) -> tuple[Any, Any, Any]:
    class Config:
        scale = 2

    class One(base):  # type: ignore[valid-type,misc]
        scale = 2

        def __init__(self) -> None:
            super().__init__()
            self.weight = framework.ones([2])
            self.config = Config()

        def helped(self) -> int:
            return 1

        def forward(self, x: Any) -> Any:
            named = 3 if type(self).__name__ == "Two" else 1
            return x * self.weight * self.scale * self.helped() * named * self.config.scale

    class Two(One):
        scale = 5

        def helped(self) -> int:
            return 7

    return One, Two, Config


def bases(framework: Any) -> dict[str, type]:
    return {"layer": layer_class(framework), "object": object}


def right(hot: Any, eager: Any, x: Any) -> None:
    for _ in range(2):
        np.testing.assert_allclose(hot(x).numpy(), eager(x).numpy())


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("base", ["layer", "object"])
def test_an_object_is_given_another_class(framework: Any, base: str, verify: str) -> None:
    one, two, config = classes(framework, bases(framework)[base])
    held, x = one(), framework.ones([2])
    hot = inference(held.forward, verify=verify)
    right(hot, held.forward, x)
    for kind in (two, one, two):
        held.__class__ = kind
        right(inference(held.forward, verify=verify), held.forward, x)
        right(hot, lambda x, kind=kind: kind.forward(held, x), x)
    two.scale = 11
    right(hot, held.forward, x)
    held.config.__class__ = type("Other", (config,), {"scale": 13})
    right(hot, held.forward, x)
    assert sum(found["hits"] for found in stats().values()) >= 5


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("base", ["layer", "object"])
def test_an_object_is_given_another_state(framework: Any, base: str, verify: str) -> None:
    one, _, _ = classes(framework, bases(framework)[base])
    held, other, x = one(), one(), framework.ones([2])
    other.weight = framework.ones([2]) * 3
    hot = inference(held.forward, verify=verify)
    right(hot, held.forward, x)
    before = held.__dict__
    held.__dict__ = other.__dict__
    right(hot, held.forward, x)
    other.weight = framework.ones([2]) * 4
    right(hot, held.forward, x)
    held.__dict__ = before
    right(hot, held.forward, x)
    held.config.__dict__ = {"scale": 9}
    right(hot, held.forward, x)
    assert sum(found["hits"] for found in stats().values()) >= 3


SUBLAYERS = {"torch": "_modules", "paddle": "_sub_layers"}


@pytest.mark.parametrize("verify", ["build", "off"])
def test_a_layer_is_given_other_groups(framework: Any, verify: str) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = framework.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    held, other, x = Layer(), Layer(), framework.ones([1, 2])
    hot = inference(held.forward, verify=verify)
    with framework.no_grad():
        right(hot, held.forward, x)
        held.__dict__[SUBLAYERS[framework.__name__]] = other.__dict__[SUBLAYERS[framework.__name__]]
        right(hot, held.forward, x)
        held.inner._parameters = Layer().inner._parameters
        right(hot, held.forward, x)
    assert sum(found["hits"] for found in stats().values()) >= 2


HOLDER = types.SimpleNamespace(scale=2)


@pytest.mark.parametrize("verify", ["build", "off"])
def test_a_global_object_is_given_another_state(framework: Any, verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Holder:
        scale = 2

    monkeypatch.setitem(globals(), "HOLDER", Holder())

    def scaled(x: Any) -> Any:
        return x * HOLDER.scale

    hot, x = inference(scaled, verify=verify), framework.ones([2])
    right(hot, scaled, x)
    HOLDER.__dict__ = {"scale": 5}
    right(hot, scaled, x)
    HOLDER.__dict__["scale"] = 7
    right(hot, scaled, x)
