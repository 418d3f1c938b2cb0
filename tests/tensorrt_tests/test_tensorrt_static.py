"""``load(path, with_trt=True)``: what is said where TensorRT does not serve the static model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from double import World

from hybrid_infer import InputSpec, _trt, load, save
from hybrid_infer.backends.tensorrt import _probe

torch = pytest.importorskip("torch")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    save(torch.nn.ReLU(), str(tmp_path / "model"), [InputSpec([None, 2], name="x")])
    return str(tmp_path / "model")


@pytest.fixture(autouse=True)
def unsaid() -> None:
    _trt._say_absent.cache_clear()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_where_it_is_absent_one_warning_says_why_and_what_installs_it(
    saved: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = f"the package tensorrt is not installed: {_probe.INSTALL}"
    monkeypatch.setattr(_probe, "missing", lambda: reason)
    given: Any = np.float32([[-1, 2]])
    for _ in range(2):
        model = load(saved, with_trt=True)
        said = warned(caplog)
        assert len(said) == 1
        assert said[0].endswith(f"with_trt=True: the next engine serves instead of TensorRT: {reason}")
        np.testing.assert_array_equal(model(given), [[0, 2]])
        np.testing.assert_array_equal(model(torch.from_numpy(given)), [[0, 2]])
    assert len(warned(caplog)) == 1


def test_where_it_is_there_one_warning_says_what_it_serves(
    world: World, saved: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = load(saved, with_trt=True)
    np.testing.assert_array_equal(model(np.float32([[-1, 2]])), [[0, 2]])
    (said,) = warned(caplog)
    assert "static models that load() gives are not served by it" in said


def test_without_it_nothing_is_said(saved: str, caplog: pytest.LogCaptureFixture) -> None:
    load(saved)(np.float32([[-1, 2]]))
    assert not warned(caplog)
