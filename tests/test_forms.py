"""Tensors that keep their place and their numbers, and get another shape or type: a method may ask for no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import layer_class

from hybrid_infer import inference, stats, to_static

TABLE: Any = None
HELD: list[Any] = []


def right(hot: Any, eager: Any, x: Any) -> None:
    for _ in range(2):
        np.testing.assert_allclose(hot(x).numpy(), eager(x).numpy())


def changes(framework: Any) -> list[Callable[[Any], None]]:
    if framework.__name__ == "paddle":
        return [lambda t: t.reshape_([3, 2]), lambda t: t.unsqueeze_(0), lambda t: t.cast_("float64")]

    def replaced(make: Callable[[Any], Any]) -> Callable[[Any], None]:
        def replace(tensor: Any) -> None:
            tensor.data = make(tensor.data)

        return replace

    return [
        lambda t: t.t_(), lambda t: t.unsqueeze_(0), lambda t: t.squeeze_(0), replaced(lambda t: t.reshape(-1)),
        replaced(lambda t: t.double()), replaced(lambda t: t.float().view(2, 3).t()),
    ]  # fmt: skip


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("place", ["weight", "buffer", "attribute", "list", "global", "list of a global"])
def test_a_tensor_of_which_only_the_form_counts(
    framework: Any, place: str, verify: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = framework.arange(6.0).reshape([2, 3])
    if place == "weight" and framework.__name__ == "paddle":
        table = framework.base.framework.EagerParamBase.from_tensor(table)
    elif place == "weight":
        table = framework.nn.Parameter(table, requires_grad=False)
    monkeypatch.setitem(globals(), "TABLE", table)
    monkeypatch.setitem(globals(), "HELD", [table])

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            if place == "buffer":
                self.register_buffer("table", table)
            else:
                self.table = [table] if place == "list" else table

        def forward(self, x: Any) -> Any:
            held = self.table[0] if place == "list" else self.table
            if place.endswith("global"):
                held = HELD[0] if place.startswith("list") else TABLE
            return x * held.shape[0] * (3 if held.dtype == framework.float64 else 1)

    layer, x = Layer(), framework.ones([2])
    hot = inference(layer.forward, verify=verify)
    with framework.no_grad():
        right(hot, layer.forward, x)
        for change in changes(framework):
            change(table)
            right(hot, layer.forward, x)
    assert sum(found["hits"] for found in stats().values()) >= 2


@pytest.mark.torch
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("verify", ["build", "off"])
def test_a_weight_is_turned_where_it_lies(verify: str, live: bool) -> None:
    torch = pytest.importorskip("torch")
    layer, x = torch.nn.Linear(3, 3, bias=False), torch.eye(3)
    hot = inference(layer.forward, verify=verify, weights="live" if live else "bound")
    with torch.no_grad():
        right(hot, layer.forward, x)
        layer.weight.data = layer.weight.data.t()
        right(hot, layer.forward, x)
        layer.weight.t_()
        right(hot, layer.forward, x)
    assert sum(found["hits"] for found in stats().values()) >= 2


@pytest.mark.torch
@pytest.mark.parametrize("verify", ["build", "off"])
def test_a_tensor_that_an_object_holds_gets_other_memory(verify: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2)

    class Holder:
        def __init__(self, held: Any) -> None:
            self.held = held

    holder = Holder(tensor)

    def scaled(x: Any) -> Any:
        return x * holder.held

    hot, x = inference(scaled, verify=verify), torch.ones(2)
    right(hot, scaled, x)
    for value in (3.0, 4.0):
        tensor.data = torch.ones(2) * value
        right(hot, scaled, x)
        tensor.data[0] = value + 0.5
        right(hot, scaled, x)
    assert sum(found["hits"] for found in stats().values()) >= 2


def test_a_container_of_layers_says_that_nothing_in_it_would_be_served(framework: Any) -> None:
    name = {"torch": "ModuleList", "paddle": "LayerList"}[framework.__name__]
    held = getattr(framework.nn, name)([framework.nn.Linear(2, 2)])
    for decorator in (inference, to_static):
        with pytest.raises(TypeError, match=rf"{name}, which has no forward .*wrap the layers that it holds"):
            decorator(held)
