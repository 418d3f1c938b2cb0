"""The order in which a layer holds its parts, where a method goes through them."""

from __future__ import annotations

from typing import Any

import pytest
from support import layer_class

from hybrid_infer import inference, stats


def layer_of(framework: Any) -> Any:
    nn = framework.nn
    several = nn.ModuleDict if hasattr(nn, "ModuleDict") else nn.LayerDict

    class Layer(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.steps = several({"linear": nn.Linear(4, 4), "act": nn.ReLU(), "norm": nn.LayerNorm(4)})

        def compute(self, x: Any) -> Any:
            for step in self.steps.values():
                x = step(x)
            return x

        @inference(verify="off")
        def forward(self, x: Any) -> Any:
            return self.compute(x)

    layer = Layer()
    layer.eval()
    return layer


def alike(framework: Any, layer: Any) -> None:
    with framework.no_grad():
        x = framework.rand([2, 4]) - 0.5
        for _ in range(2):
            assert layer(x).numpy() == pytest.approx(layer.compute(x).numpy(), abs=1e-5)


def test_sublayers_that_are_put_in_another_order(framework: Any) -> None:
    layer = layer_of(framework)
    alike(framework, layer)
    for name in ("linear", "act", "norm"):
        layer.steps[name] = layer.steps.pop(name)
        alike(framework, layer)
    [counts] = stats().values()
    assert counts["captures"] == 3 and not counts["eager_calls"], counts  # in the end the order is the first one
