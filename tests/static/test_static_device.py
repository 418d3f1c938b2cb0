"""``load(device=...)`` of a GPU moves nothing, and says so where that matters: once, and as soon as it can be known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from hybrid_infer import InputSpec, load, save
from hybrid_infer.frontends import _gpus

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("device") / "model"
    save(torch.nn.Linear(4, 3), path, [InputSpec([None, 4])], trainable=False)
    return path


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "device=" in each.getMessage()]


def test_a_gpu_that_is_not_there(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_gpus, "seen", lambda: {"torch": 1, "paddle": 0})
    static = load(model, device="gpu:7", backend="onnxruntime")
    (told,) = warnings_of(caplog)
    assert f"{model}: it was loaded with device='gpu:7'; torch sees 1 GPU and paddle sees no GPUs here" in told
    static(torch.ones(1, 4))
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("device", [None, "cpu", "gpu", "cuda:3"])
def test_what_may_be_meant(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, device: str | None
) -> None:
    monkeypatch.setattr(_gpus, "seen", lambda: {"torch": 4})
    static = load(model, device=device, backend="onnxruntime")
    assert not warnings_of(caplog)
    for _ in range(2):
        static(torch.ones(1, 4))
        static(np.ones((2, 4), np.float32))
    told = warnings_of(caplog)
    assert len(told) == (device not in (None, "cpu"))
    assert all("the tensors of a call are on 'cpu', and it moves nothing" in each for each in told)


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _gpus.seen()["torch"] == torch.cuda.device_count()
    for name in ("torch", "paddle"):
        monkeypatch.setitem(sys.modules, name, None)
    assert _gpus.seen() == {}
