"""Layers on a GPU from end to end: decorated, in each precision, weights changed, as static models, by CuPy alone."""

from __future__ import annotations

import copy
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybrid_infer
from hybrid_infer import InputSpec

torch = pytest.importorskip("torch")
from gpu_layers import Convolutions, Encoder  # noqa: E402  # which needs torch

TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}


@pytest.fixture(autouse=True)
def on_the_gpu(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped, with the reason, where there is none."""
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "native")
    torch.manual_seed(0)


def encoder(kind: Any) -> tuple[Any, list[Any]]:
    mask = torch.ones(2, 1, 1, 33, dtype=torch.bool)
    mask[1, ..., 20:] = False
    return Encoder(64, 4).eval().to(kind).cuda(), [torch.randn(2, 33, 64).to(kind).cuda(), mask.cuda()]


def convolutions(kind: Any) -> tuple[Any, list[Any]]:
    return Convolutions().eval().to(kind).cuda(), [torch.randn(2, 3, 32, 32).to(kind).cuda()]


def agree(found: Any, layer: Any, given: list[Any], tolerance: float) -> None:
    with torch.no_grad():
        expected = layer(*given)
    assert found.device == expected.device and found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def served() -> None:
    (counted,) = hybrid_infer.stats().values()
    assert not counted["fallbacks"] and not counted["eager_calls"], counted


@pytest.mark.parametrize("make", [encoder, convolutions])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_decorated_layer_launched_captured_replayed(make: Any, dtype: str) -> None:
    layer, given = make(getattr(torch, dtype))
    fast = hybrid_infer.inference(copy.deepcopy(layer))
    with torch.no_grad():
        for _ in range(4):
            agree(fast(*given), layer, given, TOLERANCES[dtype])
            given[0] = given[0] * 0.5 + 0.1
    served()


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_precision_mode(precision: str) -> None:
    layer, given = encoder(torch.float32)
    fast = hybrid_infer.inference(copy.deepcopy(layer), precision_mode=precision)
    with torch.no_grad():
        for _ in range(3):
            agree(fast(*given), layer, given, TOLERANCES[precision])
    served()


def test_weights_that_are_written_to_and_replaced() -> None:
    layer, given = encoder(torch.float32)
    fast = hybrid_infer.inference(copy.deepcopy(layer))
    with torch.no_grad():
        for change in (lambda m: None, lambda m: m.q.weight.mul_(2), lambda m: m.o.bias.data.add_(1),
                       lambda m: setattr(m.up.weight, "data", m.up.weight.data * 0.5)):  # fmt: skip
            for each in (fast, layer):
                change(each)
            for _ in range(3):
                agree(fast(*given), layer, given, 1e-4)
    served()


def test_memory_is_no_more_than_eagers() -> None:
    layer, given = encoder(torch.float16)
    fast = hybrid_infer.inference(layer, memory_pool_init_size_mb=0, verify="off")
    with torch.no_grad():
        for _ in range(4):
            fast(*given)
        assert not torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(20):
            fast(*given)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() <= before


def test_a_static_model_and_the_same_by_cupy_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second in a process without a framework, without a compiler, from the plan that the file carries."""
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "auto")
    layer, given = convolutions(torch.float32)
    hybrid_infer.save(layer.cpu(), tmp_path / "model", [InputSpec([None, 3, 32, 32])], trainable=False, plans=True)
    layer.cuda()
    static = hybrid_infer.load(tmp_path / "model")
    for _ in range(3):
        agree(static(*given), layer, given, 1e-4)
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("needs an NVIDIA GPU and CuPy, which is not installed")
    np.save(tmp_path / "x.npy", given[0].cpu().numpy())
    program = (
        "import sys, cupy, numpy as np\nfrom hybrid_infer import load\nstatic = load('model', backend='native')\n"
        "x = cupy.asarray(np.load('x.npy'))\nfor _ in range(3): y = static(x)\nnp.save('y.npy', cupy.asnumpy(y))\n"
        "assert type(y) is cupy.ndarray and not {'torch', 'paddle', 'onnx'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), layer(*given).cpu().numpy(), rtol=1e-4, atol=1e-4)
