"""Hooks that run inside of a method, which are not its caller's: tests that are the same for every framework."""

from __future__ import annotations

from typing import Any

from support import counts, served

from hybrid_infer import inference


def of_what_a_function_calls(model: Any, x: Any, add: str, same: Any) -> None:
    """`add`: the name of the method that adds a hook behind a layer's forward; `same` compares two results."""
    seen: list[int] = []

    @inference()
    def run(x: Any) -> Any:
        return model(x)

    same(run(x), model(x))
    same(run(x), model(x))
    served(captures=1)
    getattr(model, add)(lambda layer, given, result: seen.append(1) or result + 100)  # type: ignore[func-returns-value]
    for _ in range(2):
        same(run(x), model(x))
    assert len(seen) == 4


def of_a_method_that_calls_its_own_layer(layer_type: Any, linear: Any, x: Any, add: str, same: Any) -> None:
    """`linear`: a layer for arguments like `x`."""

    class Own(layer_type):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: Any) -> Any:
            return self.linear(x)

        @inference()
        def predict(self, x: Any) -> Any:
            return self(x) * 2

    layer, seen = Own(), []
    same(layer.predict(x), layer(x) * 2)
    same(layer.predict(x), layer(x) * 2)
    served(captures=1)
    handle = getattr(layer, add)(lambda layer, given, result: seen.append(1) or result + 100)
    for _ in range(2):
        same(layer.predict(x), layer(x) * 2)
    assert len(seen) == 4
    handle.remove()
    same(layer.predict(x), layer(x) * 2)
    assert counts()["eager_calls"] == 2
