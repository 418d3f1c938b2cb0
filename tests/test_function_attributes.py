"""Attributes that a program gives to functions and partial objects: a method that reads them sees each change."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from support import layer_class

from hybrid_infer import inference, stats

KEPT: Any = None


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize(
    "place, kind",
    [(place, kind) for place in ("attribute", "list", "global") for kind in ("function", "partial")][:-1],
)  # docs/limits.md names the last one
def test_an_attribute_of_a_function(
    framework: Any, place: str, kind: str, verify: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain() -> int:
        return 1

    kept: Any = plain if kind == "function" else functools.partial(plain)
    kept.scale = 2
    monkeypatch.setitem(globals(), "KEPT", kept)

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.kept = [kept] if place == "list" else kept

        def forward(self, x: Any) -> Any:
            held = KEPT if place == "global" else self.kept[0] if place == "list" else self.kept
            return x * held.scale * getattr(held, "more", 1)

    layer, x = Layer(), framework.ones([2])
    hot = inference(layer.forward, verify=verify)

    def right() -> None:
        for _ in range(2):
            np.testing.assert_allclose(hot(x).numpy(), layer.forward(x).numpy())

    right()
    kept.scale = 5
    right()
    if place != "global":  # of a function that a global names, one that is new goes unseen
        kept.more = 7
        right()
    kept.scale = [2][0]
    right()
    kept.others = 0
    right()
    assert sum(found["hits"] for found in stats().values()) >= 3
