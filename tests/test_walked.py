"""The fingerprint of a method's code is taken again when something that it was made of has changed, and only then."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference
from hybrid_infer.fingerprint import _walked

STEP = 1.0
TABLE = {"by": 1.0}
HELD: list[Any] = []


@pytest.fixture(autouse=True)
def first_values() -> Iterator[None]:
    global STEP
    STEP, TABLE["by"] = 1.0, 1.0
    HELD.clear()
    yield


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods whose code was walked through."""
    begun: list[str] = []
    walk = _walked._fingerprint.fingerprint

    def noted(functions: Any, *rest: Any, **named: Any) -> Any:
        begun.append(functions[0].__qualname__)
        return walk(functions, *rest, **named)

    monkeypatch.setattr(_walked, "_fingerprint", types.SimpleNamespace(fingerprint=noted))
    return begun


def _x(framework: Any, n: int) -> Any:
    values = np.arange(n, dtype="float32")
    return framework.to_tensor(values) if framework.__name__ == "paddle" else framework.from_numpy(values)


def _helper(x: Any) -> Any:
    return x + 1


def _other(x: Any) -> Any:
    return x + 100


def _third(x: Any) -> Any:
    return x - 1


def _layer(framework: Any) -> Any:
    class Scaled(layer_class(framework)):  # type: ignore[misc]
        offset = 0.0

        def __init__(self) -> None:
            super().__init__()
            self.inner = framework.nn.ReLU()

        @inference(fallback="error")
        def forward(self, x: Any, by: Any = 1) -> Any:
            return _helper(self.inner(x)) * STEP * TABLE["by"] + self.offset

    return Scaled()


def _right(framework: Any, layer: Any, n: int, want: Any) -> None:
    x = _x(framework, n)
    with framework.no_grad():
        np.testing.assert_allclose(np.asarray(layer(x)), want(np.arange(n, dtype="float32")), rtol=1e-6)


@pytest.mark.usefixtures("small")
def test_other_sizes_are_no_reason_to_walk_again(framework: Any, walks: list[str]) -> None:
    layer = _layer(framework)
    for n in (3, 4, 5, 6):
        _right(framework, layer, n, lambda x: x + 1)
    assert counts()["captures"] == 2 and len(walks) == 1


@pytest.mark.usefixtures("small")
def test_each_change_between_two_sizes_is_seen(
    framework: Any, walks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    global STEP
    layer = _layer(framework)
    _right(framework, layer, 3, lambda x: x + 1)
    STEP = 2.0
    _right(framework, layer, 4, lambda x: (x + 1) * 2)
    TABLE["by"] = 3.0
    _right(framework, layer, 5, lambda x: (x + 1) * 6)
    monkeypatch.setattr(type(layer), "offset", 7.0)
    _right(framework, layer, 6, lambda x: (x + 1) * 6 + 7)
    monkeypatch.setattr(sys.modules[__name__], "_helper", _other)
    _right(framework, layer, 7, lambda x: (x + 100) * 6 + 7)
    if framework.__name__ == "paddle":  # which finds no source for a function with the code of another
        monkeypatch.setattr(sys.modules[__name__], "_helper", _third)
    else:
        monkeypatch.setattr(_other, "__code__", _third.__code__)
    _right(framework, layer, 8, lambda x: (x - 1) * 6 + 7)
    layer.inner = framework.nn.Sigmoid()
    _right(framework, layer, 9, lambda x: (1 / (1 + np.exp(-x)) - 1) * 6 + 7)
    assert len(walks) == 7 and counts()["eager_calls"] == 0


def test_what_the_layer_comes_to_hold_is_no_longer_a_value_of_the_code(framework: Any) -> None:
    """A list in a global is part of the code's key; once the layer holds it, what was read of it is watched."""

    class Listed(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def forward(self, x: Any) -> Any:
            return x * HELD[0]

    layer = Listed()
    HELD.append(2.0)
    _right(framework, layer, 3, lambda x: x * 2)
    layer.held = HELD
    _right(framework, layer, 4, lambda x: x * 2)
    HELD[0] = 3.0
    _right(framework, layer, 5, lambda x: x * 3)
    _right(framework, layer, 5, lambda x: x * 3)
    del layer.held
    HELD[0] = 4.0
    _right(framework, layer, 6, lambda x: x * 4)
    _right(framework, layer, 6, lambda x: x * 4)
