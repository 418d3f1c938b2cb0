"""Which of a model's parts are one and the same object is a part of what a static model depends on."""

from __future__ import annotations

from typing import Any

import pytest
from support import layer_class

from hybrid_infer import inference, stats


def shared(framework: Any) -> type[Any]:
    nn = framework.nn
    several = nn.ModuleList if hasattr(nn, "ModuleList") else nn.LayerList

    class Shared(layer_class(framework)):  # type: ignore[misc, valid-type]
        """Layers in a list and by themselves, of which some are others: `pattern` says which."""

        def __init__(self, pattern: str, held: Any = several) -> None:
            super().__init__()
            framework.manual_seed(0) if hasattr(framework, "manual_seed") else framework.seed(0)
            made = {name: nn.Linear(4, 4) for name in sorted({*pattern})}
            *listed, self.last = (made[name] for name in pattern)
            self.layers = held(listed)

        def compute(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return self.last(x)

        @inference
        def forward(self, x: Any) -> Any:
            return self.compute(x)

    return Shared


def alike(framework: Any, layer: Any) -> None:
    layer.eval()
    x = framework.linspace(-1, 1, 8).reshape((2, 4))
    with framework.no_grad():
        expected = layer.compute(x).numpy()
        for _ in range(2):
            assert abs(layer(x).numpy() - expected).max() < 1e-5


@pytest.mark.parametrize("held", ["several", list, tuple], ids=["layers", "list", "tuple"])
def test_instances_that_share_other_parts(framework: Any, held: Any) -> None:
    kind = shared(framework)
    more = () if held == "several" else (held,)
    for pattern in ("aba", "abb", "aab", "abc", "aba", "aaa"):
        alike(framework, kind(pattern, *more))


def test_parts_that_change_places(framework: Any) -> None:
    layer = shared(framework)("aba")
    alike(framework, layer)
    layer.layers[0], layer.layers[1] = layer.layers[1], layer.layers[0]
    alike(framework, layer)
    layer.last = layer.layers[0]
    alike(framework, layer)


def test_equal_instances_are_still_served_by_one_graph(framework: Any) -> None:
    kind = shared(framework)
    for _ in range(3):
        alike(framework, kind("aba"))
    [counts] = stats().values()
    assert counts["captures"] == 1


def test_objects_that_are_held_twice(framework: Any) -> None:
    nn = framework.nn

    class Settings:
        def __init__(self, scale: float) -> None:
            self.scale = scale

    class Scaled(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.one, self.other = Settings(1.0), Settings(2.0)
            self.current = self.one

        def compute(self, x: Any) -> Any:
            return self.linear(x) * self.current.scale + self.one.scale + self.other.scale

        @inference
        def forward(self, x: Any) -> Any:
            return self.compute(x)

    layer = Scaled()
    alike(framework, layer)
    layer.current = layer.other
    alike(framework, layer)
    layer.one, layer.other = layer.other, layer.one
    alike(framework, layer)
