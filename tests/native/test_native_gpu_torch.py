"""Decorated layers of PyTorch on the double of a GPU: plans, weights, reasons, against eager."""

from __future__ import annotations

import copy
import gc
import logging
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import FakeCuda, HostMemory
from gpu_layers import Convolutions, Encoder
from native_support import ops
from support import counts, served

import hybrid_infer
from hybrid_infer import _family
from hybrid_infer._errors import EngineError
from hybrid_infer.backends.native import _driver, _nvrtc, _plan, gpu

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Warped(torch.nn.Module):
    """An operator that no kernel of ours computes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        where = torch.tanh(x[:, :2]).permute(0, 2, 3, 1)
        return torch.nn.functional.grid_sample(x, where, mode="bicubic", align_corners=False)


def test_a_decorated_layer(on_a_gpu: HostMemory, cuda: FakeCuda, store: Path) -> None:
    """Captured, built, verified, kept, found again by the next program, which compiles nothing."""
    torch.manual_seed(0)
    layer = Convolutions().eval()
    x = torch.randn(2, 3, 16, 16)
    compiled = []
    with torch.no_grad():
        expected = layer(x)
        for _ in range(2):
            fast = hybrid_infer.inference(copy.deepcopy(layer), memory_pool_init_size_mb=3)
            for _ in range(4):
                torch.testing.assert_close(fast(x), expected, rtol=3e-5, atol=3e-5)
            compiled.append(cuda.compiler.calls)  # type: ignore[attr-defined]
    assert compiled[0] and compiled[1] == compiled[0]
    served(captures=1)
    assert cuda.count["cuGraphLaunch"]
    assert (3 << 20) in on_a_gpu.allocated
    kept = {path.suffix for path in store.rglob("plans/*/*") if path.is_file()}
    assert kept == {".json", ".bin", ".cubin"}


def test_what_the_planner_decided_is_explained(on_a_gpu: HostMemory, cuda: FakeCuda) -> None:
    torch.manual_seed(0)
    layer, mask = Encoder(16, 2).eval(), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    with torch.no_grad():
        fast = hybrid_infer.inference(layer)
        fast(torch.randn(2, 5, 16), mask)
    told = hybrid_infer.explain(fast)
    (version,) = told.to_dict()["methods"][0]["versions"]
    decisions = version["decisions"]["native"]
    assert {"attention", "gemm", "rows", "elementwise", "layout", "memory", "kernels"} - {
        each["rule"] for each in decisions
    } <= {"layout", "elementwise"}  # of which this layer has none
    assert all(each["why"] for each in decisions)
    text = str(told)
    assert "planned" in text and "native, gemm: adds its bias (" in text and " times)" in text
    assert "is one step" in text and "values share one arena" in text and "kernels serve" in text


def test_chosen_by_measurement_that_waits_for_the_work(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eager and engine are timed to the end of what they have enqueued."""
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()).eval()
    x = torch.randn(3, 8)
    with torch.no_grad():
        expected = layer(x)
        found = hybrid_infer.inference(layer)(x)
    torch.testing.assert_close(found, expected, rtol=3e-5, atol=3e-5)
    assert on_a_gpu.waits


def test_what_no_kernel_computes_stays_eager_with_the_reason(on_a_gpu: HostMemory, cuda: FakeCuda) -> None:
    layer, x = Warped().eval(), torch.randn(1, 3, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(hybrid_infer.inference(copy.deepcopy(layer))(x), layer(x))
    assert "has no kernel for GridSample" in str(hybrid_infer.stats())


@pytest.mark.parametrize("weights", ["bound", "live"])
def test_complex_weights_stay_eager_with_the_reason(on_a_gpu: HostMemory, cuda: FakeCuda, weights: str) -> None:
    class Turns(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("by", torch.polar(torch.ones(4), torch.arange(4.0)))

        def forward(self, x: Any) -> Any:
            return torch.view_as_real(torch.view_as_complex(x) * self.by)

    assert "has no element type complex64" in answered(Turns(), torch.randn(3, 4, 2), times=2, weights=weights)


def test_a_device_without_memory_left_is_answered_eagerly(on_a_gpu: HostMemory, cuda: FakeCuda) -> None:
    layer, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()).eval(), torch.randn(3, 8)
    with torch.no_grad():
        fast = hybrid_infer.inference(copy.deepcopy(layer))
        fast(x)
        on_a_gpu.limit = 10
        torch.testing.assert_close(fast(x), layer(x))
    assert "CUDA out of memory" in str(hybrid_infer.stats())


def small() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()).eval(), torch.randn(3, 8)


def answered(layer: Any, x: Any, times: int = 1, **options: Any) -> str:
    """What the counters say after right answers."""
    with torch.no_grad():
        fast = hybrid_infer.inference(copy.deepcopy(layer), **options)
        for _ in range(times):
            torch.testing.assert_close(fast(x), layer(x), rtol=3e-5, atol=3e-5)
    return str(hybrid_infer.stats())


def test_without_a_driver_calls_are_answered_eagerly_with_the_reason(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_driver, "missing", lambda: "the NVIDIA driver is not installed: install it")
    for backend in ("native", "auto"):
        monkeypatch.setenv("HYBRID_INFER_BACKEND", backend)
        hybrid_infer.reset_stats()
        assert "the NVIDIA driver is not installed: install it" in answered(*small(), times=2)
    assert not cuda.streams


def test_a_gpu_of_another_architecture_has_a_plan_of_its_own(on_a_gpu: HostMemory, cuda: FakeCuda) -> None:
    """Beside the other one: each GPU finds its own again."""
    compiled = []
    for major in (9, 8, 9, 8):
        cuda.attributes[75] = major
        answered(*small())
        compiled.append(cuda.compiler.calls)  # type: ignore[attr-defined]
    served(captures=1)
    assert compiled == [compiled[0], 2 * compiled[0], 2 * compiled[0], 2 * compiled[0]]


def test_a_plan_that_the_driver_is_too_old_for_is_made_anew(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a home directory that machines with several drivers share; by a compiler that this one knows."""
    monkeypatch.setattr(_nvrtc, "version", lambda: "13.5.37")
    answered(*small())
    compiled = cuda.compiler.calls  # type: ignore[attr-defined]
    cuda.version = 12040
    monkeypatch.setattr(_nvrtc, "version", lambda: "12.9.86")
    _family._FAMILIES.clear()  # as in the next process
    with pytest.warns(hybrid_infer.CacheWarning, match="is made anew: native: its kernels are compiled by CUDA 13's"):
        answered(*small())
    assert cuda.compiler.calls == 2 * compiled  # type: ignore[attr-defined]
    for version in (12040, 13000):
        cuda.version = version
        _family._FAMILIES.clear()
        answered(*small())
    assert cuda.compiler.calls == 2 * compiled  # type: ignore[attr-defined]
    served(captures=1)


def test_a_plan_that_cannot_be_made_anew_stays_for_machines_that_it_is_of_use_to(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_nvrtc, "version", lambda: "13.5.37")
    answered(*small())
    cuda.version = 12040
    monkeypatch.setattr(_nvrtc, "missing", lambda: "the package cuda-bindings is not installed")
    monkeypatch.setattr(_nvrtc, "version", lambda: "")
    _family._FAMILIES.clear()  # as in the next process
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert "the package cuda-bindings is not installed" in answered(*small())
    assert not [each for each in said if issubclass(each.category, hybrid_infer.CacheWarning)]
    hybrid_infer.reset_stats()
    cuda.version = 13000  # one of those machines
    for _ in range(2):
        _family._FAMILIES.clear()
        answered(*small())
    served(captures=0)


def test_a_compiler_that_is_installed_later_is_used_by_the_next_process(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = _nvrtc.missing
    monkeypatch.setattr(_nvrtc, "missing", lambda: "the package cuda-bindings is not installed")
    assert "the package cuda-bindings is not installed" in answered(*small(), times=3)
    hybrid_infer.reset_stats()
    monkeypatch.setattr(_nvrtc, "missing", missing)
    _family._FAMILIES.clear()
    answered(*small(), times=2)
    served(captures=0)


def test_without_a_compiler_a_plan_cannot_be_made_but_one_that_is_there_is_used(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(*small())
    monkeypatch.setattr(_nvrtc, "missing", lambda: "the package cuda-bindings is not installed")
    answered(*small())
    served(captures=1)
    cuda.attributes[75] = 8
    assert "the package cuda-bindings is not installed" in answered(*small())


@pytest.mark.parametrize("call, code", [("cuModuleLoadData", 209), ("cuModuleGetFunction", 500)])
def test_kernels_that_the_driver_refuses_are_a_reason(
    call: str, code: int, on_a_gpu: HostMemory, cuda: FakeCuda
) -> None:
    cuda.fail[call] = code
    assert call in answered(*small())


def test_memory_that_is_short_when_a_program_is_loaded_is_asked_for_again(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is not given up for a cause that passes."""
    from hybrid_infer.checks import _verified

    layer, x = small()
    upload = on_a_gpu.upload

    def short(array: Any) -> Any:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(on_a_gpu, "upload", short)
    with torch.no_grad():
        fast = hybrid_infer.inference(copy.deepcopy(layer))
        torch.testing.assert_close(fast(x), layer(x))
        assert "CUDA out of memory" in str(hybrid_infer.explain(fast)) + str(hybrid_infer.stats())
        monkeypatch.setattr(on_a_gpu, "upload", upload)
        monkeypatch.setattr(_verified.time, "monotonic", lambda clock=_verified.time.monotonic: clock() + 1e6)
        for _ in range(2):
            torch.testing.assert_close(fast(x), layer(x), rtol=3e-5, atol=3e-5)
    assert cuda.streams


def test_enable_cinn_takes_the_native_engine_without_a_measurement(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    plans, prepare = [], gpu.NativeGpu.prepare

    def noted(self: Any, *arguments: Any) -> Any:
        found = prepare(self, *arguments)
        plans.append(_plan.restore(found[gpu.PLAN], found[gpu.CONSTANTS]))
        return found

    monkeypatch.setattr(gpu.NativeGpu, "prepare", noted)
    answered(*small(), times=2, enable_cinn=True, switch_ir_optim=False)
    served(captures=1, bindings=1)
    assert not on_a_gpu.waits and ops(plans[0])["gemm"] == 1  # fused all the same
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_it_serves_while_tensorrt_builds_in_the_background(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hybrid_infer import _background
    from hybrid_infer.backends.tensorrt import _probe
    from hybrid_infer.backends.tensorrt.engine import TensorRt

    go, begun = threading.Event(), threading.Event()

    def slowly(self: Any, *arguments: Any) -> Any:
        begun.set()
        assert go.wait(60)
        raise EngineError("tensorrt", "its build was stopped")

    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    monkeypatch.setattr(_probe, "missing", lambda: "")
    monkeypatch.setattr(TensorRt, "plan_key", lambda self, options: f"tensorrt {options.extra.get('profile')}")
    monkeypatch.setattr(TensorRt, "version", lambda self: "11.4")
    monkeypatch.setattr(TensorRt, "prepare", slowly)
    layer, x = small()
    with torch.no_grad():
        fast = hybrid_infer.inference(copy.deepcopy(layer), with_trt=True, background=True)
        torch.testing.assert_close(fast(x), layer(x))
        assert begun.wait(60)
        for _ in range(3):
            torch.testing.assert_close(fast(x), layer(x), rtol=3e-5, atol=3e-5)
        assert cuda.count["cuGraphLaunch"] and counts()["eager_calls"] == 1
        go.set()
        _background.wait()
        torch.testing.assert_close(fast(x), layer(x), rtol=3e-5, atol=3e-5)
    (version,) = hybrid_infer.explain(fast).to_dict()["methods"][0]["versions"]
    assert version["served_by"] == ["native"]


def test_enable_cinn_says_why_the_native_engine_cannot_be_had(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from hybrid_infer import _demanded

    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    monkeypatch.setattr(_driver, "missing", lambda: "the NVIDIA driver is not installed")
    _demanded.say_absent.cache_clear()
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        answered(*small(), times=2, enable_cinn=True)
    told = [each for each in caplog.messages if "enable_cinn=True:" in each]
    assert len(told) == 1 and "the NVIDIA driver is not installed" in told[0]
    monkeypatch.setattr(_driver, "missing", lambda: "")

    caplog.clear()
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        answered(Warped().eval(), torch.randn(1, 3, 4, 4), times=2, enable_cinn=True)
    told = [each for each in caplog.messages if "enable_cinn=True:" in each]
    assert len(told) == 1 and "has no kernel for GridSample" in told[0]


def pair(weights: str) -> tuple[Any, Any]:
    """A layer, and one with the same values that is served."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).eval()
    return plain, hybrid_infer.inference(copy.deepcopy(plain), weights=weights)


@pytest.mark.parametrize("weights", ["auto", "bound", "live"])
def test_a_weight_that_is_written_to_is_read_where_it_lies(
    weights: str, on_a_gpu: HostMemory, cuda: FakeCuda
) -> None:
    """One program and its graphs for all values, whatever the option: kernels read the framework's tensors in place."""
    plain, fast = pair(weights)
    x, other = torch.randn(3, 8), {name: each * 0.5 for name, each in plain.state_dict().items()}

    def add(layer: Any) -> None:
        layer[0].weight += 0.25

    def unseen(layer: Any) -> None:
        layer[2].bias.data.copy_(torch.arange(4.0))

    with torch.no_grad():
        for change in (lambda layer: None, add, unseen, lambda layer: layer.load_state_dict(other), add):
            for each in (fast, plain):
                change(each)
            for _ in range(2):
                torch.testing.assert_close(fast(x), plain(x), rtol=3e-5, atol=3e-5)
    served(captures=1, bindings=1)
    assert cuda.count["cuStreamBeginCapture_v2"] == 1 and cuda.count["cuGraphLaunch"] == 9
    (version,) = hybrid_infer.explain(fast).to_dict()["methods"][0]["versions"]
    assert version["weights"] == ["live"]


def test_everything_is_let_go_with_the_layer(
    on_a_gpu: HostMemory, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arena, the buffers of graphs, the graphs; the kernels' code stays loaded, and a stream for captures."""
    held: list[weakref.ref[Any]] = []
    empty = on_a_gpu.empty

    def noted(shape: Any, dtype: str) -> Any:
        made = empty(shape, dtype)
        held.append(weakref.ref(made))
        return made

    monkeypatch.setattr(on_a_gpu, "empty", noted)
    layer, x = small()
    with torch.no_grad():
        fast = hybrid_infer.inference(copy.deepcopy(layer))
        for n in (3, 2, 3, 2, 3):
            fast(x[:n])
    assert cuda.live["ready graph"] and any(each() is not None for each in held)
    del fast
    gc.collect()
    assert not cuda.live["ready graph"] and cuda.live["stream"] == 1 and cuda.live["module"]
    assert not [each for each in held if each() is not None]


@pytest.mark.parametrize("weights", ["auto", "live"])
def test_a_weight_that_is_replaced_takes_its_graphs_with_it(
    weights: str, on_a_gpu: HostMemory, cuda: FakeCuda
) -> None:
    plain, fast = pair(weights)
    x, held = torch.randn(3, 8), []

    def data(layer: Any) -> None:
        held.append(layer[0].weight.data)  # what is freed may be given out again at the same address
        layer[0].weight.data = layer[0].weight.data * 2

    def object_(layer: Any) -> None:
        held.append(layer[2].bias)
        layer[2].bias = torch.nn.Parameter(layer[2].bias + 1)

    def moved(layer: Any) -> None:  # as `to` and `cuda` do it
        held.append([each.data for each in layer.parameters()])
        layer._apply(torch.clone)

    with torch.no_grad():
        for n, change in enumerate((lambda layer: None, data, object_, moved, data, data, data, object_)):
            for each in (fast, plain):
                change(each)
            for _ in range(3):
                torch.testing.assert_close(fast(x), plain(x), rtol=3e-5, atol=3e-5)
            assert cuda.count["cuStreamBeginCapture_v2"] == n + 1
    served(captures=1)
    gc.collect()
    assert cuda.live["ready graph"] == 1
