"""A function of the framework that the program has replaced is a part of the program."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from hybrid_infer import inference, stats


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "paddle")])
def framework(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


def fresh(framework: Any) -> Any:
    nn = framework.nn
    base = nn.Module if hasattr(nn, "Module") else nn.Layer

    class Linear(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def compute(self, x: Any) -> Any:
            return self.inner(x)

        @inference
        def forward(self, x: Any) -> Any:
            return self.compute(x)

    layer = Linear()
    layer.eval()
    return layer


def alike(framework: Any, layer: Any) -> None:
    x = framework.linspace(-1, 1, 8).reshape((2, 4))
    with framework.no_grad():
        expected = layer.compute(x).numpy()
        for _ in range(2):
            assert abs(layer(x).numpy() - expected).max() < 1e-5


def test_programs_with_and_without_it_share_nothing(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    functional = framework.nn.functional
    linear = functional.linear
    for factor in (2.0, 3.0, 2.0):
        with monkeypatch.context() as patched:
            patched.setattr(functional, "linear", lambda *a, _n=factor, **k: linear(*a, **k) * _n)
            layer = fresh(framework)
            alike(framework, layer)
        alike(framework, layer)  # as it was: seen by the same instance
        alike(framework, fresh(framework))
    [counts] = stats().values()
    assert counts["captures"] == 3
