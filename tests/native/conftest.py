"""A GPU that is none: the executor's driver and compiler replaced by doubles on the host."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_cublaslt import FakeLt
from fake_cuda import FakeCuda, HostMemory, host_compiler
from fake_cudnn import FakeCudnn
from kernel_support import COMPILER

from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends._cuda import _memory
from hybrid_infer.backends.native import (
    _algorithms,
    _apart,
    _cublaslt,
    _cudnn,
    _driver,
    _fused_convolutions,
    _graph_costs,
    _libraries,
    _modules,
    _nvrtc,
    _timing,
    engine,
)

# Static models are tested on these doubles too; Paddle's memory on the host is that of TensorRT's tests.
sys.path.extend(str(Path(__file__).resolve().parents[1] / room) for room in ("static", "tensorrt_tests"))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCuda]:
    """The double of the driver, in place of the real one; ``compiles`` counts what was compiled."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    fake = FakeCuda()
    launcher = _driver.Launcher(fake)
    compiler = host_compiler(tmp_path)
    monkeypatch.setattr(_driver, "launcher", lambda: launcher)
    monkeypatch.setattr(_nvrtc, "compile_cubin", compiler)
    monkeypatch.setattr(_nvrtc, "missing", lambda: "")
    for name in ("COPY", "REPLAY"):  # graphs of few steps are captured too
        monkeypatch.setattr(_graph_costs, name, 0.0)
    for library in (_cublaslt, _cudnn):
        monkeypatch.setattr(library, "missing", lambda: "it is not wanted in this test")
    monkeypatch.setattr(_libraries, "_opened", {})
    monkeypatch.setattr(_libraries, "_offers", {})
    monkeypatch.setattr(_modules, "_loaded", {})
    monkeypatch.setattr(_apart, "_idle", {})
    monkeypatch.setattr(_memory, "_reserved", set())
    for name in ("empty", "upload", "synchronize"):
        monkeypatch.setattr(HostMemory, name, _outside_captures(fake, getattr(HostMemory, name)))
    fake.compiler = compiler  # type: ignore[attr-defined]
    yield fake


def _outside_captures(fake: FakeCuda, method: Any) -> Any:
    """What a framework asks the driver for, which refuses it in a thread that captures."""

    def careful(self: HostMemory, *given: Any) -> Any:
        if fake.captures_here():
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return method(self, *given)

    return careful


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Graph, Any]]:
    """What was captured in this test: graphs, and the weights that were bound to them."""
    found: list[tuple[Graph, Any]] = []
    prepare, load = engine.Native.prepare, engine.Native.load
    graphs: list[Graph] = []

    def noted(self: Any, graph: Graph, options: EngineOptions) -> Any:
        graphs.append(graph)
        return prepare(self, graph, options)

    def bound(self: Any, graph: Graph, weights: Any, *more: Any) -> Any:
        found.append((replace(graphs[-1], weights=graph.weights), weights))
        return load(self, graph, weights, *more)

    monkeypatch.setattr(engine.Native, "prepare", noted)
    monkeypatch.setattr(engine.Native, "load", bound)
    return found


@pytest.fixture
def cudnn(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeCudnn:
    """The double of cuDNN, likewise."""
    fake = FakeCudnn(cuda._enqueue, cuda.destroyed, cuda.spend)
    monkeypatch.setattr(_timing, "FLUSHED", 1 << 16)
    monkeypatch.setattr(_fused_convolutions, "_COLD", 1 << 16)
    monkeypatch.setattr(_fused_convolutions, "SECONDS", 1e9)  # this GPU takes its time
    monkeypatch.setattr(_cudnn, "missing", lambda: "")
    monkeypatch.setattr(_cudnn, "_binding", lambda: fake)
    return fake


@pytest.fixture
def cublaslt(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeLt:
    """The double of cuBLASLt, which computes on the streams of the double of the driver."""
    fake = FakeLt(cuda._enqueue, cuda.spend)
    monkeypatch.setattr(_timing, "FLUSHED", 1 << 16)
    for name, value in (("_COLD", 1 << 16), ("WORKSPACE", 1 << 16), ("SECONDS", 1e9)):  # this GPU takes its time
        monkeypatch.setattr(_algorithms, name, value)
    monkeypatch.setattr(_cublaslt, "missing", lambda: "")
    monkeypatch.setattr(_cublaslt, "_bindings", lambda: fake)
    return fake


@pytest.fixture
def on_a_gpu(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> HostMemory:
    """Every tensor of the host passes for one on a GPU."""
    from hybrid_infer.frontends.torch import TorchFrontend

    memory, describe = HostMemory(), TorchFrontend.describe
    memory.device = "cuda:0"
    monkeypatch.setattr(TorchFrontend, "describe", lambda self, tensor: (*describe(self, tensor)[:2], "cuda:0"))
    monkeypatch.setattr(TorchFrontend, "memory", lambda self, device: memory)
    monkeypatch.setattr(_driver, "missing", lambda: "")
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "native")
    return memory
