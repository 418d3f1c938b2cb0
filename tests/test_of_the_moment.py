"""Captures that fail for a cause of the moment are tried again, and no other process is told of them."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import CacheWarning, _log, _options, _pauses, inference, reset_stats
from hybrid_infer._errors import TraceError

FAULTS = [
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    ImportError("libengine.so: failed to map segment from shared object"),
    RuntimeError("std::bad_alloc"),
    FileNotFoundError(2, "No usable temporary directory found in ['/tmp']"),
    OSError(122, "Disk quota exceeded"),
    PermissionError(13, "Permission denied", "/elsewhere"),
    RuntimeError("can't start new thread"),
    ValueError("I/O operation on closed file."),
    AttributeError("module 'torch._dynamo' has no attribute 'exc'"),
    TraceError("partially initialized module 'sympy' has no attribute 'core' (most likely due to a circular import)"),
    AssertionError("Trying to pop empty mode stack"),
    RuntimeError("(PreconditionNotMet) The block obtained before and after calling the static API x is inconsistent."),
]


def layer_of(framework: Any, **options: Any) -> Any:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2

    return inference(Layer(), **options)


@pytest.mark.parametrize("fault", FAULTS, ids=[str(type(each).__name__) for each in FAULTS])
def test_it_is_tried_again_by_this_process_and_the_next(
    framework: Any, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: now[0]))
    failing, attempts = [True], []

    def broken(*args: Any) -> Any:
        attempts.append(1)
        if failing[0]:
            raise fault
        return capture(*args)

    layer, x = layer_of(framework), framework.ones([2, 4])
    frontend = type(layer.forward.__hybrid_infer__.state(layer).frontend)
    capture = frontend.capture
    monkeypatch.setattr(frontend, "capture", broken)

    with framework.no_grad():
        for _ in range(3):
            assert float(layer(x).sum()) == 16
        assert counts()["eager_calls"] == 3 and counts()["captures"] == 0
        tried = len(attempts)
        failing[0] = False
        now[0] += 30
        layer(x)
        assert len(attempts) == tried
        now[0] += 31
        layer(x)
        assert len(attempts) > tried and counts()["captures"] == 1
        reset_stats()
        failing[0] = True
        wider = framework.ones([2, 2, 4])
        layer(wider)
        failing[0] = False
        del layer
        other = layer_of(framework)  # what another process finds in the store
        for _ in range(2):
            other(wider)
        assert counts()["captures"] == 1 and counts()["hits"] == 1


def test_a_folder_that_is_gone(
    framework: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What tracers import asks where the program runs."""
    layer, x = layer_of(framework), framework.ones([2, 4])
    frontend = type(layer.forward.__hybrid_infer__.state(layer).frontend)
    monkeypatch.setattr(frontend, "capture", lambda *args: os.getcwd())
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with framework.no_grad():
        assert float(layer(x).sum()) == 16
    assert "runs eagerly: the folder in which the program runs is gone, for which " in caplog.text
    monkeypatch.undo()
    other = layer_of(framework)
    with framework.no_grad():
        other(x)
    assert counts()["captures"] == 1


def test_a_store_in_a_folder_that_is_gone(framework: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with framework.no_grad():
        layer_of(framework)(framework.ones([2, 4]))  # what that imports may ask where the program runs
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("HYBRID_INFER_CACHE_READONLY", "beside")
    gone.rmdir()
    layer = layer_of(framework, save_model_dir="mine")
    with framework.no_grad(), pytest.warns(CacheWarning, match="nothing is stored.* save_model_dir='mine' .*is gone"):
        layer(framework.ones([2, 4]))
    reset_stats()
    with framework.no_grad():
        assert float(layer(framework.ones([2, 4])).sum()) == 16
    assert counts()["hits"] == 1 and _options.store_bases(tmp_path) == []


def test_a_stream_that_was_closed_costs_no_answer() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            asked.append(record)
            raise ValueError("I/O operation on closed file.")

    asked: list[logging.LogRecord] = []
    handler = Broken()
    _log.LOGGER.addHandler(handler)
    try:
        _log.tell(logging.WARNING, "eager", "f", "told")
    finally:
        _log.LOGGER.removeHandler(handler)
    assert asked
