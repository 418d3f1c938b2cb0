"""Code and values that the names in a method do not lead to by the way that they are written."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference


class Plugin:
    factor = 2.0


class First(Plugin):
    pass


def _installed(x: Any) -> Any:
    return scaled(x) * SCALE_OF_ALL  # type: ignore[name-defined]  # noqa: F821


def _every_plugin(x: Any) -> Any:
    for each in Plugin.__subclasses__():
        x = x * each.factor
    return x


def _layer(framework: Any, function: Callable[[Any], Any]) -> Any:
    class Method(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return function(x)

    layer = Method()
    layer.eval()
    return inference(layer)


def _right(framework: Any, layer: Any, want: float) -> None:
    with framework.no_grad():
        np.testing.assert_allclose(np.asarray(layer(framework.ones([2, 3]))), np.full((2, 3), want, "float32"))


def test_what_a_program_adds_to_the_builtins_counts(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(x: Any) -> Any:
        return x * 2

    monkeypatch.setattr(builtins, "scaled", twice, raising=False)
    monkeypatch.setattr(builtins, "SCALE_OF_ALL", 1.5, raising=False)
    layer = _layer(framework, _installed)
    for _ in range(2):
        _right(framework, layer, 3.0)
    assert counts()["captures"] == 1 and counts()["hits"] == 1
    monkeypatch.setattr(builtins, "SCALE_OF_ALL", 2.5)
    _right(framework, layer, 5.0)
    monkeypatch.setattr(builtins, "scaled", lambda x: x * 3)
    _right(framework, layer, 7.5)
    monkeypatch.setitem(_installed.__globals__, "scaled", lambda x: x)
    _right(framework, layer, 2.5)
    assert counts()["captures"] == 4 and not counts()["fallbacks"]


def test_the_subclasses_of_a_class_are_asked_for_eagerly(framework: Any) -> None:
    layer = _layer(framework, _every_plugin)
    for _ in range(2):
        _right(framework, layer, 2.0)
    (reason,) = counts()["fallbacks"]
    assert "it reads the subclasses of a class (" in reason and "test_known_by_no_name.py" in reason
