"""Calls that meet a framework or an engine which another thread is importing."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from hybrid_infer import _frontends, backends


def test_a_framework_that_is_being_imported_is_asked_for_again(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_frontends, "_FRONTENDS", {})
    name, half = framework.__name__, types.ModuleType(framework.__name__)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, name, half)
        assert _frontends.imported(name) is None
        half.nn = framework.nn  # type: ignore[attr-defined]
        half.__spec__ = types.SimpleNamespace(_initializing=True)  # type: ignore[assignment]
        assert _frontends.imported(name) is None
    assert _frontends.imported(name).name == name


def test_an_engine_that_is_being_imported_has_nothing_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "hybrid_infer.backends.onnxruntime"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    backends.trim()
