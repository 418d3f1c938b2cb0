"""Environment variables that a method reads: watched as its attributes are, and part of what is on disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from support import counts, layer_class

import hybrid_infer
from hybrid_infer import explain, inference
from hybrid_infer.capture import _outside

NAME = "SOME_SCALE"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "0")
    monkeypatch.delenv(NAME)


def _layer(framework: Any, fallback: str = "error") -> Any:
    class Scaled(layer_class(framework)):  # type: ignore[misc]
        @inference(fallback=fallback)
        def forward(self, x: Any) -> Any:
            return x * float(os.getenv(NAME, "1"))

        @inference()
        def changing(self, x: Any) -> Any:
            before = float(os.environ.get(NAME, "1"))
            os.environ[NAME] = str(before + 1)
            return x * before

        @inference(fallback="error")
        def at_home(self, x: Any) -> Any:
            return x * len(os.path.expanduser("~/x"))

    return Scaled()


def _x(framework: Any, *sizes: int) -> Any:
    values = np.arange(1, 1 + np.prod(sizes, dtype=int), dtype="float32").reshape(sizes)
    return framework.to_tensor(values) if framework.__name__ == "paddle" else framework.from_numpy(values)


def _scaled(framework: Any, layer: Any, by: float, *sizes: int, method: str = "forward") -> None:
    x = _x(framework, *(sizes or (3,)))
    with framework.no_grad():
        np.testing.assert_allclose(np.asarray(getattr(layer, method)(x)), by * np.asarray(x), rtol=1e-6)


def test_each_value_has_a_static_model_of_its_own(framework: Any) -> None:
    layer = _layer(framework)
    for value, by, captures in ((None, 1, 1), ("2", 2, 2), ("2", 2, 2), (None, 1, 2), ("3", 3, 3), ("2", 2, 3)):
        os.environ.pop(NAME, None)
        if value is not None:
            os.environ[NAME] = value
        _scaled(framework, layer, by)
        _scaled(framework, layer, by)
        assert counts()["captures"] == captures and counts()["eager_calls"] == 0


def test_another_environment_in_its_place_is_seen(framework: Any) -> None:
    layer = _layer(framework, fallback="eager")
    _scaled(framework, layer, 1)
    with mock.patch.dict(os.environ, {NAME: "5"}, clear=True):
        _scaled(framework, layer, 5)
    _scaled(framework, layer, 1)
    with mock.patch.object(os, "environ", {NAME: "4"}):  # it cannot be seen what is read of that
        _scaled(framework, layer, 4)
    _scaled(framework, layer, 1)


def test_sizes_vary_as_they_do_elsewhere(framework: Any) -> None:
    layer = _layer(framework)
    for n in (3, 4, 5, 6):
        _scaled(framework, layer, 1, n)
    assert counts()["captures"] == 2


def test_what_a_method_sets_is_answered_eagerly_and_set_once_for_each_call(framework: Any) -> None:
    layer = _layer(framework)
    for n in range(1, 6):
        _scaled(framework, layer, n, method="changing")
        assert os.environ[NAME] == str(float(n + 1))
    assert counts()["hits"] == 0


def test_a_variable_that_a_library_of_python_asks_for_on_the_way_counts(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = _layer(framework)
    for home in ("/home/a", "/home/longer"):
        monkeypatch.setenv("HOME", home)
        _scaled(framework, layer, len(home) + 2, method="at_home")
        _scaled(framework, layer, len(home) + 2, method="at_home")
    assert counts()["captures"] == 2 and counts()["eager_calls"] == 0


def test_explain_names_the_variable_and_the_store_does_not_hold_its_value(framework: Any) -> None:
    os.environ[NAME] = "123.5"
    layer = _layer(framework)
    _scaled(framework, layer, 123.5)
    [version] = next(each["versions"] for each in explain(layer).to_dict()["methods"] if each["versions"])
    assert f"os.environ.{NAME}" in version["reads"]
    folder = Path(os.environ["HYBRID_INFER_CACHE_DIR"])
    meta = [file.read_text() for file in folder.rglob("*.json")]
    assert any(NAME in text for text in meta) and not any("123.5" in text for text in meta)


def test_what_the_library_asks_for_itself_does_not_count() -> None:
    with _outside.watch() as found:
        hybrid_infer.inference(lambda x: x)
    assert not found.variables and not found.reasons


def test_what_was_set_inside_is_taken_back() -> None:
    os.environ[NAME] = "1"
    with _outside.watch() as found:
        os.environ[NAME] = "2"
        os.environ.pop(NAME)
        os.environ["ANOTHER_SCALE"] = "3"
    assert os.environ[NAME] == "1" and "ANOTHER_SCALE" not in os.environ
    assert all(any(name in reason for reason in found.reasons) for name in (NAME, "ANOTHER_SCALE"))
