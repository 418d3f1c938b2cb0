"""Products and convolutions of float32 on a GPU: in TF32 where the framework's own may be, and compared accordingly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cublaslt import FakeLt, tf32
from fake_cuda import Array, FakeCuda, HostMemory
from fake_cudnn import FakeCudnn
from kernel_cases import _free_model
from native_support import node, sample
from support import counts
from test_native_cublaslt import program_of

import hybrid_infer
from hybrid_infer import _family
from hybrid_infer._types import TF32
from hybrid_infer.backends.native import _passes

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PRODUCTS, CONVOLUTIONS = TF32(products=True), TF32(convolutions=True)


def run(nodes: Any, shapes: dict[str, tuple[int, ...]], told: TF32 | None, dtype: str = "float32") -> tuple[Any, Any]:
    """What a program gives, and its operands."""
    plan = _passes.plan(_free_model(nodes, {name: (dtype, shape) for name, shape in shapes.items()}, ["y"], {}))
    program, graph = program_of(plan, told)
    feeds = {name: sample(shape, i).astype(dtype) for i, (name, shape) in enumerate(shapes.items())}
    (found,) = program.run([Array.of(feeds[name], dtype) for name in graph.inputs])
    return found.array, [*feeds.values()]


@pytest.mark.parametrize("told", [None, TF32(), CONVOLUTIONS, PRODUCTS])
def test_products(told: TF32 | None, cublaslt: FakeLt) -> None:
    found, (a, b) = run([node("MatMul", ["a", "b"], ["y"])], {"a": (5, 40), "b": (40, 7)}, told)
    rounded = told is PRODUCTS
    np.testing.assert_allclose(found, tf32(a) @ tf32(b) if rounded else a @ b, rtol=1e-5, atol=1e-5)
    assert cublaslt.count["tf32"] == int(rounded) and (np.abs(found - a @ b).max() > 1e-4) == rounded


def test_other_types_are_not_rounded(cublaslt: FakeLt) -> None:
    run([node("MatMul", ["a", "b"], ["y"])], {"a": (5, 40), "b": (40, 7)}, PRODUCTS, "float64")
    run([node("MatMul", ["a", "b"], ["y"])], {"a": (5, 40), "b": (40, 7)}, PRODUCTS, "float16")
    assert cublaslt.count["matmul"] and not cublaslt.count["tf32"]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("told", [None, PRODUCTS, CONVOLUTIONS])
def test_convolutions(told: TF32 | None, bias: bool, cudnn: FakeCudnn, cuda: FakeCuda) -> None:
    shapes = {"x": (2, 8, 9, 7), "w": (16, 8, 3, 2), **({"b": (16,)} if bias else {})}
    found, operands = run([node("Conv", [*shapes], ["y"])], shapes, told)
    x, w, *more = map(torch.tensor, operands)
    exact = torch.conv2d(x, w, *more).numpy()
    rounded = told is CONVOLUTIONS
    wanted = torch.conv2d(*(torch.tensor(tf32(each)) for each in (x, w)), *more).numpy() if rounded else exact
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert (np.abs(found - exact).max() > 1e-4) == rounded
    assert cudnn.count["execute"] == 1 and not cuda.count["cuLaunchKernel"]  # the channels stay where they are


class Rounding(torch.nn.Module):
    """Its eager method computes as a GPU does: on the host nothing rounds."""

    def __init__(self, error: float = 0.0) -> None:
        super().__init__()
        self.conv, self.linear, self.error = torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.Linear(8, 4), error

    def forward(self, x: Any) -> Any:
        x = self.conv(x).mean((2, 3))
        x = self.linear(x)
        return x if torch.compiler.is_exporting() else x + self.error


def decorated(error: float, **options: Any) -> Any:
    torch.manual_seed(0)
    layer = Rounding(error)
    return hybrid_infer.inference(layer.eval(), **options)


def scale() -> float:
    torch.manual_seed(0)
    with torch.no_grad():
        return float(Rounding()(torch.ones(2, 3, 8, 8)).abs().max())


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what PyTorch says that it rounds."""
    from hybrid_infer.frontends.torch import TorchFrontend

    def allow(told: TF32) -> None:
        monkeypatch.setattr(TorchFrontend, "tf32", lambda self: told)

    return allow


@pytest.mark.parametrize(("told", "serves"), [(TF32(), False), (PRODUCTS, True), (CONVOLUTIONS, True)])
def test_the_eager_methods_own_rounding_is_no_fault_of_an_engine(
    told: TF32, serves: bool, allowed: Any, on_a_gpu: HostMemory
) -> None:
    allowed(told)
    fast = decorated(3e-3 * scale())
    with torch.no_grad():
        for _ in range(3):
            fast(torch.ones(2, 3, 8, 8))
    assert bool(counts()["hits"]) == serves


@pytest.mark.parametrize(
    ("first", "error", "then", "less"), [(TF32(), 3e-3, PRODUCTS, 3e-3), (PRODUCTS, 3e-2, TF32(), 0.0)]
)
def test_a_refusal_under_one_setting_says_nothing_about_the_other(
    first: TF32, error: float, then: TF32, less: float, allowed: Any, on_a_gpu: HostMemory
) -> None:
    """In the next process: it is kept on disk."""
    for told, off, serves in ((first, error, False), (then, less, True)):
        allowed(told)
        hybrid_infer.reset_stats()
        _family._FAMILIES.clear()
        fast = decorated(off * scale())
        with torch.no_grad():
            for _ in range(3):
                fast(torch.ones(2, 3, 8, 8))
        assert bool(counts()["hits"]) == serves


def test_on_the_host_nothing_is_rounded(allowed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed(TF32(True, True, True))
    fast = decorated(3e-3 * scale(), backend="onnxruntime")
    with torch.no_grad():
        for _ in range(3):
            fast(torch.ones(2, 3, 8, 8))
    assert not counts()["hits"]


def test_a_setting_that_changes_is_followed(
    allowed: Any, on_a_gpu: HostMemory, cublaslt: FakeLt, cudnn: FakeCudnn
) -> None:
    """The plan is the same; the libraries are asked anew."""
    fast, x = decorated(0.0), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        exact = Rounding.forward(fast, x)
        for told, times in ((TF32(), 0), (TF32(True, True), 1), (TF32(), 0)):
            allowed(told)
            before = cublaslt.count["tf32"]
            for _ in range(2):
                found = fast(x)
            assert (cublaslt.count["tf32"] > before) == bool(times)
            assert (float((found - exact).abs().max()) > 1e-5) == bool(times)
    assert counts()["captures"] == 1 and counts()["builds"] == 1
    assert "what may be rounded to TF32 had changed (2 times)" in str(hybrid_infer.explain(fast))


def test_a_static_model_follows_a_setting_that_changes(
    allowed: Any, on_a_gpu: HostMemory, cublaslt: FakeLt, cudnn: FakeCudnn, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    layer, x = Rounding().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        exact = layer(x)
        hybrid_infer.save(layer, str(tmp_path / "model"), input_spec=[x])
        static = hybrid_infer.load(str(tmp_path / "model"))
        for told in (TF32(), TF32(True, True), TF32(True, True), TF32()):
            allowed(told)
            before = cublaslt.count["tf32"]
            found = static(x)
            assert (float((found - exact).abs().max()) > 1e-5) == told.products
            assert (cublaslt.count["tf32"] > before) == told.products


def test_the_settings_of_pytorch_are_read_whichever_way_they_were_made() -> None:
    from hybrid_infer.frontends import _tf32

    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = matmul.fp32_precision, conv.fp32_precision
    try:
        for value in ("tf32", "ieee"):
            matmul.fp32_precision, conv.fp32_precision = value, value
            found = _tf32.of_torch()
            assert (found.products, found.convolutions) == (value == "tf32",) * 2
    finally:
        matmul.fp32_precision, conv.fp32_precision = before
