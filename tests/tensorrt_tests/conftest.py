"""Puts a double in the place of TensorRT, and gives these tests the graphs of the other engines' tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from double import World

sys.path.append(str(Path(__file__).resolve().parents[1] / "backends"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A machine with a GPU and TensorRT, both made of the CPU; what it is to do can be changed in the test."""
    import double

    from hybrid_infer.backends._cuda import _driver
    from hybrid_infer.backends.tensorrt import _probe

    made = double.World()
    modules: dict[str, object] = {}

    def module() -> object:
        if made.release not in modules:
            modules[made.release] = double.module(made)
        return modules[made.release]

    monkeypatch.setattr(_probe, "missing", lambda: "")
    monkeypatch.setattr(_probe, "module", module)
    monkeypatch.setattr(_probe, "version", lambda: module().__version__)  # type: ignore[attr-defined]
    monkeypatch.setattr(_probe, "gpu", lambda index: _driver.Gpu(made.gpu, 9, 0))
    return made


@pytest.fixture
def on_the_host(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU's tensors are said to be a GPU's."""
    from host_memory import PaddleHost, TorchHost

    from hybrid_infer import _background, _trt
    from hybrid_infer.frontends import paddle, torch

    monkeypatch.setattr(_trt, "DEVICES", ("cpu",))
    monkeypatch.setattr(torch.TorchFrontend, "memory", lambda self, device: TorchHost(device))
    monkeypatch.setattr(paddle.PaddleFrontend, "memory", lambda self, device: PaddleHost(device))
    _trt._say_absent.cache_clear()
    _trt._say_passed_over.cache_clear()
    yield
    _background.wait()
