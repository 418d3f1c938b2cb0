"""Layers that code reaches out of sight of the method's own: hooks that they are given later are seen."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import layer_class

from hybrid_infer import inference, stats

PLACES: dict[str, Callable[[Any], tuple[Any, Callable[[Any], Any]]]] = {
    "partial": lambda layer: (functools.partial(layer), lambda held: held),
    "bound method": lambda layer: (layer.forward, lambda held: held),
    "object": lambda layer: (type("Holder", (), {"layer": layer})(), lambda held: held.layer),
    "deque": lambda layer: (deque([layer]), lambda held: held[0]),
}


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("name", PLACES)
def test_hooks_that_come_later(framework: Any, name: str, verify: str) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = framework.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    layer = Layer()
    held, get = PLACES[name](layer)

    def called(x: Any) -> Any:
        return get(held)(x) * 2

    hot, x = inference(called, verify=verify), framework.ones([1, 2])
    register = "register_forward_post_hook" if framework.__name__ == "paddle" else "register_forward_hook"
    with framework.no_grad():
        for each in (None, layer.inner, None, layer, None):
            hook = None if each is None else getattr(each, register)(lambda layer, given, found: found * 3)
            for _ in range(2):
                np.testing.assert_allclose(hot(x).numpy(), called(x).numpy(), rtol=1e-5)
            if hook is not None:
                hook.remove()
        layer.__class__ = type("Other", (Layer,), {"forward": lambda self, x: self.inner(x) * 5})
        for _ in range(2):
            np.testing.assert_allclose(hot(x).numpy(), called(x).numpy(), rtol=1e-5)
    if framework.__name__ == "torch":  # Paddle's trace leaves those of most such places alone
        assert sum(found["hits"] for found in stats().values()) >= 2
