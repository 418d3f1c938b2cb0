"""Static models called with CuPy arrays, on doubles of driver and CuPy: in place, or on the CPU with a reason."""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_cupy
import numpy as np
import pytest
from fake_cuda import FakeCuda
from static_support import run

from hybrid_infer import InputSpec, StaticModelError, load, save
from hybrid_infer.backends.native import _driver, _nvrtc
from hybrid_infer.frontends import cupy as cupy_frontend

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.linear, self.out = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        hidden = torch.nn.functional.gelu(self.linear(self.norm(x)), approximate="tanh")
        return {"logits": self.out(hidden).softmax(-1), "given": x, "rows": hidden.sum(-1)}


@pytest.fixture(params=["stand-in", "installed"])
def world(
    request: pytest.FixtureRequest, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> Iterator[fake_cupy.World]:
    """A process with CuPy and a GPU, both made of the host. ``cupy``: the module."""
    made: Any = fake_cupy.World()
    if request.param == "installed":
        made.cupy = fake_cupy.grounded(made, monkeypatch)
    else:
        made.cupy = fake_cupy.stand_in(made)
        monkeypatch.setitem(sys.modules, "cupy", made.cupy)
    monkeypatch.setattr(cupy_frontend, "FRONTEND", cupy_frontend.CupyFrontend())
    monkeypatch.setattr(_driver, "missing", lambda: "")
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    yield made
    if request.param == "installed":
        made.cupy.cuda.set_allocator()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Any, str]]:
    """A layer of a class, and the path of its static model, which is made once."""
    found: dict[Any, tuple[Any, str]] = {}

    def saved(kind: type[Any], dtype: str = "float32") -> tuple[Any, str]:
        if (kind, dtype) not in found:
            layer, path = kind().to(getattr(torch, dtype)).eval(), str(tmp_path_factory.mktemp("static") / "model")
            save(layer, path, [InputSpec([None, 8], dtype)], trainable=False)
            found[kind, dtype] = layer, path
        return found[kind, dtype]

    return saved


def points(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)


def test_arrays_in_and_out_in_place_on_the_current_stream(world: Any, cuda: FakeCuda, models: Any) -> None:
    """Launched, captured, replayed; memory of CuPy's, and weights that are moved to the GPU once."""
    layer, path = models(Net)
    static = load(path)
    cupy = world.cupy
    before = len(world.allocated)
    for turn in range(4):
        given = cupy.asarray(points(5, turn))
        found = static(given)
        assert found["given"] is given and type(found["logits"]) is cupy.ndarray
        with torch.no_grad():
            expected = layer(torch.from_numpy(points(5, turn)))
        for name in ("logits", "rows"):
            np.testing.assert_allclose(cupy.asnumpy(found[name]), expected[name].numpy(), rtol=3e-5, atol=3e-5)
    assert cuda.count["cuGraphLaunch"] == 3 and set(cuda.streams) == {world.stream}
    taken = world.allocated[before:]
    for shape in ((16, 8), (4, 16), (16,)):
        assert taken.count(4 * int(np.prod(shape))) >= 1
    assert taken.count(16 * 8 * 4) == 1
    assert (1000 << 20) in taken  # what is reserved at the first call on a device
    world.stream = 9
    static(cupy.asarray(points(5)))
    assert cuda.streams[-1] == 9


def test_weights_are_there_for_every_stream(world: Any, cuda: FakeCuda, models: Any, monkeypatch: Any) -> None:
    """CuPy's copies from the host run in the order of the current stream, which may be busy, unless asked to wait."""
    layer, path = models(Net)
    cupy, plain, late = world.cupy, world.cupy.asarray, []
    given = plain(points(5))

    def asarray(array: Any, *, blocking: bool = False) -> Any:
        if blocking or isinstance(array, cupy.ndarray):
            return plain(array)
        made, right = plain(np.full_like(array, 0x63)), np.ascontiguousarray(array)
        late.append(lambda: ctypes.memmove(made.data.ptr, right.ctypes.data, right.nbytes))
        return made

    monkeypatch.setattr(cupy, "asarray", asarray)
    static = load(path)
    static(given)  # whose stream has not come to it yet
    world.stream = 9
    found = static(given)["logits"]
    with torch.no_grad():
        expected = layer(torch.from_numpy(points(5)))["logits"].numpy()
    np.testing.assert_allclose(cupy.asnumpy(found), expected, rtol=3e-5, atol=3e-5)


def test_in_half_precision(world: Any, cuda: FakeCuda, models: Any) -> None:
    layer, path = models(Net)
    found = load(path, precision_mode="float16")(world.cupy.asarray(points(5)))["logits"]
    with torch.no_grad():
        expected = layer(torch.from_numpy(points(5)))["logits"]
    assert found.dtype == np.float32 and cuda.streams
    difference = np.abs(world.cupy.asnumpy(found) - expected.numpy()).max()
    assert 0 < difference < 1e-2


def test_every_size_by_one_program(world: Any, cuda: FakeCuda, models: Any) -> None:
    layer, path = models(Net)
    static, cupy = load(path), world.cupy
    compiled = None
    for count in (1, 3, 2, 7, 3):
        found = static(cupy.asarray(points(count)))
        with torch.no_grad():
            expected = layer(torch.from_numpy(points(count)))
        np.testing.assert_allclose(cupy.asnumpy(found["logits"]), expected["logits"].numpy(), rtol=3e-5, atol=3e-5)
        compiled = compiled or cuda.compiler.calls  # type: ignore[attr-defined]
    assert cuda.compiler.calls == compiled  # type: ignore[attr-defined]


def test_bfloat16_is_that_of_ml_dtypes(world: Any, cuda: FakeCuda, models: Any) -> None:
    import ml_dtypes

    layer, path = models(Net, "bfloat16")
    static, cupy = load(path), world.cupy
    x = points(5).astype(ml_dtypes.bfloat16)
    found = static(cupy.asarray(x))["logits"]
    assert found.dtype == ml_dtypes.bfloat16
    with torch.no_grad():
        expected = layer(torch.from_numpy(x.astype(np.float32)).bfloat16())["logits"]
    np.testing.assert_allclose(cupy.asnumpy(found).astype(np.float32), expected.float().numpy(), rtol=2**-6, atol=2**-6)


def test_arrays_with_gaps_and_other_weights(world: Any, cuda: FakeCuda, models: Any) -> None:
    _, path = models(Net)
    static, cupy = load(path), world.cupy
    wide = cupy.asarray(np.repeat(points(4), 2, axis=0))
    static(wide)
    other = Net()
    with torch.no_grad():
        for each in other.parameters():
            each += 0.25
        expected = other(torch.from_numpy(points(4)))["rows"]
    static.set_state_dict({name: cupy.asarray(each.detach().numpy()) for name, each in other.named_parameters()})
    found = static(cupy.asarray(points(4)))["rows"]
    np.testing.assert_allclose(cupy.asnumpy(found), expected.numpy(), rtol=3e-5, atol=3e-5)


class Warped(torch.nn.Module):
    """A weight for a result, and an operator that no kernel of ours computes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(8.0))

    def forward(self, x: Any) -> Any:
        image = (x * self.weight)[None, None]
        where = torch.tanh(torch.stack([image[0], image[0] / 2], -1))
        return torch.nn.functional.grid_sample(image, where, mode="bicubic", align_corners=False), self.weight


def test_what_no_kernel_computes_is_computed_on_the_cpu(
    world: Any, cuda: FakeCuda, models: Any, caplog: pytest.LogCaptureFixture
) -> None:
    layer, path = models(Warped)
    static, cupy = load(path), world.cupy
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        found, weight = static(cupy.asarray(points(3)))
        static(cupy.asarray(points(3)))
    assert type(found) is type(weight) is cupy.ndarray
    expected = layer(torch.from_numpy(points(3)))[0].detach()
    np.testing.assert_allclose(cupy.asnumpy(found), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(cupy.asnumpy(weight), np.arange(8.0))
    (told,) = [each for each in caplog.messages if "computes on the CPU" in each]
    assert "has no kernel for GridSample" in told and "onnxruntime" in told
    with pytest.raises(StaticModelError, match="has no kernel for GridSample"):
        load(path, backend="native")(cupy.asarray(points(3)))


def test_a_device_without_memory_left(
    world: Any, cuda: FakeCuda, models: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """When the weights are moved there, and when a call is made: the CPU answers, and the next call is tried anew."""
    layer, path = models(Net)
    cupy, x = world.cupy, points(40)
    with torch.no_grad():
        expected = layer(torch.from_numpy(x))["logits"].numpy()
    given, small = cupy.asarray(x), cupy.asarray(points(1))
    world.limit = 300
    static = load(path)
    assert "Out of memory" in _told(caplog, static, small)
    world.limit = None
    static = load(path)
    static(small)
    launched = len(cuda.streams)
    world.limit = 700  # enough for the results, not for the values between
    assert "a call is computed on the CPU" in _told(caplog, static, given)
    np.testing.assert_allclose(cupy.asnumpy(static(given)["logits"]), expected, rtol=3e-5, atol=3e-5)
    assert len(cuda.streams) == launched
    world.limit = None
    np.testing.assert_allclose(cupy.asnumpy(static(given)["logits"]), expected, rtol=3e-5, atol=3e-5)
    assert len(cuda.streams) > launched
    world.limit = 300
    with pytest.raises(StaticModelError, match="Out of memory"):
        load(path, backend="native")(cupy.asarray(points(2)))


def _told(caplog: pytest.LogCaptureFixture, static: Any, *arguments: Any) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        static(*arguments)
    return "\n".join(caplog.messages)


def test_the_cpu_where_it_is_asked_for(world: Any, cuda: FakeCuda, models: Any) -> None:
    layer, path = models(Net)
    for asked in ({"device": "cpu"}, {"backend": "onnxruntime"}):
        found = load(path, **asked)(world.cupy.asarray(points(3)))["logits"]
        with torch.no_grad():
            expected = layer(torch.from_numpy(points(3)))["logits"]
        np.testing.assert_allclose(world.cupy.asnumpy(found), expected.numpy(), rtol=3e-5, atol=3e-5)
    assert not cuda.streams


@pytest.mark.parametrize(
    "release, hip, words", [("13.6.0", False, "13.6.0 is installed, and 14 or later"), ("14.2.0", True, "AMD")]
)
def test_another_cupy_is_a_reason(
    release: str, hip: bool, words: str, cuda: FakeCuda, models: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    _, path = models(Net)
    made = fake_cupy.stand_in(fake_cupy.World(), release)
    made.cuda.runtime.is_hip = hip
    monkeypatch.setitem(sys.modules, "cupy", made)
    monkeypatch.setattr(cupy_frontend, "FRONTEND", cupy_frontend.CupyFrontend())
    monkeypatch.setattr(_driver, "missing", lambda: "")
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    static = load(path)
    told = _told(caplog, static, made.asarray(points(3)))
    assert words in told and "computes on the CPU" in told
    assert not cuda.streams


def test_without_a_driver_the_cpu_serves(
    world: Any, monkeypatch: pytest.MonkeyPatch, models: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, path = models(Net)
    monkeypatch.setattr(_driver, "missing", lambda: "the NVIDIA driver is not installed")
    assert "the NVIDIA driver is not installed" in _told(caplog, load(path), world.cupy.asarray(points(3)))


ALONE = """
import sys
from pathlib import Path
sys.path.insert(0, "{here}")
import fake_cupy, numpy as np
from fake_cuda import FakeCuda
from hybrid_infer.backends.native import _cublaslt, _cudnn, _driver
cuda, world = FakeCuda(), fake_cupy.World()
cupy = fake_cupy.stand_in(world)
sys.modules["cupy"] = cupy
launcher = _driver.Launcher(cuda)
_driver.launcher, _driver.missing = lambda: launcher, lambda: ""
for library in (_cublaslt, _cudnn):
    library.missing = lambda: "it is not wanted in this test"
from hybrid_infer import load
found = load("model")(cupy.asarray(np.load("x.npy")))
assert set(cuda.streams) == {{world.stream}} and type(found["logits"]) is cupy.ndarray
np.save("y.npy", cupy.asnumpy(found["logits"]))
print(sorted({{"torch", "paddle", "onnx", "onnxruntime"}} & {{name for name, module in sys.modules.items() if module}}))
"""


@pytest.mark.processes
def test_a_process_with_cupy_alone_compiles_nothing(
    cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No framework, no ONNX, no compiler: the artefact brings the plan that was made where it was saved."""
    monkeypatch.setattr(_driver, "missing", lambda: "")
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    layer = Net().eval()
    save(layer, tmp_path / "model", [InputSpec([None, 8])], trainable=False, plans=True)
    np.save(tmp_path / "x.npy", points(6))
    absent = ("torch", "paddle", "paddle2onnx", "onnxscript", "onnx", "onnxruntime", "openvino", "cuda", "nvidia")
    told = run(ALONE.format(here=Path(__file__).parent), tmp_path, without=absent)
    assert told.strip() == "[]"
    with torch.no_grad():
        expected = layer(torch.from_numpy(points(6)))["logits"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected.numpy(), rtol=3e-5, atol=3e-5)


def test_a_plan_that_the_driver_here_is_too_old_for_is_made_anew(
    world: Any, cuda: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(_nvrtc, "version", lambda: "13.5.37")
    layer = Net().eval()
    save(layer, tmp_path / "model", [InputSpec([None, 8])], trainable=False, plans=True)
    cuda.version = 12040
    monkeypatch.setattr(_nvrtc, "version", lambda: "12.9.86")
    with caplog.at_level("INFO", "hybrid_infer"):
        found = load(tmp_path / "model")(world.cupy.asarray(points(6)))
    assert "is made anew here: native: its kernels are compiled by CUDA 13's compiler" in caplog.text and cuda.streams
    with torch.no_grad():
        expected = layer(torch.from_numpy(points(6)))["logits"]
    np.testing.assert_allclose(world.cupy.asnumpy(found["logits"]), expected.numpy(), rtol=3e-5, atol=3e-5)
    monkeypatch.setattr(_nvrtc, "missing", lambda: "the package cuda-bindings is not installed")
    load(tmp_path / "model", backend="native")(world.cupy.asarray(points(6)))  # the one made anew was kept
    with pytest.raises(StaticModelError, match=r"compiled by CUDA 13's .*; and made anew here: the package cuda-bind"):
        load(tmp_path / "model", backend="native", cache_static_model=False)(world.cupy.asarray(points(6)))


def test_tensors_of_torch_on_a_gpu_stay_there(on_a_gpu: Any, cuda: FakeCuda, models: Any, caplog: Any) -> None:
    """A static model computes where the tensors of a call are; without memory there, on the CPU with copies."""
    layer, path = models(Net)
    static, x = load(path, backend="auto"), torch.from_numpy(points(5))
    with torch.no_grad():
        expected = layer(x)
    for _ in range(3):
        found = static(x)
        assert type(found["logits"]) is torch.Tensor and found["given"] is x
        torch.testing.assert_close(found["logits"], expected["logits"], rtol=3e-5, atol=3e-5)
    assert cuda.count["cuGraphLaunch"] == 2
    on_a_gpu.limit = 20
    with pytest.raises(StaticModelError, match="CUDA out of memory"):
        static(x)


def test_values_that_were_written_to_are_seen(world: Any) -> None:
    memory = cupy_frontend.FRONTEND.memory("cuda:0")
    count = 64 if hasattr(world.cupy, "__file__") else 640  # with gaps, CuPy itself copies by a kernel
    held, empty = np.arange(count, dtype=np.float32).reshape(-1, 8), np.zeros((0, 3), np.float32)
    first, second = world.cupy.asarray(held), world.cupy.asarray(empty)
    compare = memory.spread([first, second])
    assert compare()()
    ctypes.memmove(memory.pointer(first), (held + 1).ctypes.data, held.nbytes)
    assert not compare()()


def test_what_is_asked_of_cupy_is_there() -> None:
    """Held against the package that is installed, which needs no driver for this; the stand-in knows no more."""
    import inspect

    cupy = pytest.importorskip("cupy")
    assert int(cupy.__version__.partition(".")[0]) >= 14 and cupy.cuda.runtime.is_hip is False
    stream, device, pointer = cupy.cuda.Stream, cupy.cuda.Device, cupy.cuda.MemoryPointer

    class External:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 7

    assert stream.from_external(External()).ptr == 7
    assert "device_id=-1" in inspect.getdoc(cupy.cuda.get_current_stream)
    for kind, names in (
        (stream, ("synchronize", "is_capturing")), (device, ("__enter__", "__exit__")),
        (pointer, ("ptr", "device_id")),
        (cupy.ndarray, ("data", "dtype", "shape", "reshape", "view", "transpose", "astype", "__getitem__", "__int__")),
    ):  # fmt: skip
        assert not [name for name in names if not hasattr(kind, name)], kind
    inspect.signature(cupy.empty).bind((2, 3), dtype="float32")
    inspect.signature(cupy.asarray).bind(np.zeros(1), blocking=True)
    inspect.signature(cupy.array).bind(np.zeros(1), order="C")
    inspect.signature(cupy.asnumpy).bind(np.zeros(1))
    inspect.signature(cupy.ascontiguousarray).bind(np.zeros(1))
    own = fake_cupy.stand_in(fake_cupy.World())
    assert not [name for name in vars(own) if not name.startswith("__") and not hasattr(cupy, name)]
