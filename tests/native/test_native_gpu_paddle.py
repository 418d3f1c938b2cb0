"""Layers of Paddle on the double of a GPU: tensors in and out where they lie, on the current stream, against eager."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from host_memory import PaddleHost
from support import served

import hybrid_infer
from hybrid_infer import InputSpec, StaticModelError
from hybrid_infer.backends.native import _driver
from hybrid_infer.backends.native._plan import BYTES

paddle = pytest.importorskip("paddle")
pytestmark = pytest.mark.paddle


class Memory(PaddleHost):
    """Paddle's own memory as the library reaches for it, on the host; ``limit``: bytes that there are at most."""

    limit: int | None = None

    def empty(self, shape: Any, dtype: str) -> Any:
        if self.limit is not None and BYTES[dtype] * np.prod(shape) > self.limit:
            raise MemoryError("ResourceExhaustedError: Out of memory error on GPU 0.\nCannot allocate 1GB")
        return super().empty(shape, dtype)


@pytest.fixture
def memory(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Every tensor of the host passes for one on a GPU."""
    from hybrid_infer.frontends.paddle import PaddleFrontend

    made, describe = Memory("gpu:0"), PaddleFrontend.describe
    monkeypatch.setattr(PaddleFrontend, "describe", lambda self, tensor: (*describe(self, tensor)[:2], "gpu:0"))
    monkeypatch.setattr(PaddleFrontend, "memory", lambda self, device: made)
    monkeypatch.setattr(_driver, "missing", lambda: "")
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "native")
    return made


def encoder() -> tuple[Any, Any]:
    paddle.seed(0)
    layer = paddle.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", normalize_before=True)
    layer.eval()
    return layer, paddle.randn([2, 5, 16])


def convolutions() -> tuple[Any, Any]:
    paddle.seed(0)
    layer = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 8, 3, padding=1), paddle.nn.BatchNorm2D(8), paddle.nn.ReLU(), paddle.nn.MaxPool2D(2),
        paddle.nn.AdaptiveAvgPool2D(1), paddle.nn.Flatten(), paddle.nn.Linear(8, 4),
    )  # fmt: skip
    layer.eval()
    return layer, paddle.randn([2, 3, 8, 8])


def images() -> tuple[Any, Any]:
    """A decoder of them: made larger by weights and between pixels, surrounded by mirrors of themselves."""
    paddle.seed(0)
    layer = paddle.nn.Sequential(
        paddle.nn.Conv2DTranspose(3, 8, 3, stride=2, padding=1, output_padding=1), paddle.nn.ReLU(),
        paddle.nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        paddle.nn.Pad2D([1, 2, 0, 1], mode="reflect"), paddle.nn.Conv2DTranspose(8, 4, 2, stride=2, groups=2),
        paddle.nn.Upsample(size=[9, 12], mode="bicubic"),
        paddle.nn.Upsample(size=[10, 7], mode="bilinear", align_corners=False, align_mode=1),
    )  # fmt: skip
    layer.eval()
    return layer, paddle.randn([2, 3, 4, 5])


@pytest.mark.parametrize("make", [encoder, convolutions, images])
def test_a_decorated_layer(make: Any, memory: Memory, cuda: FakeCuda) -> None:
    layer, x = make()
    with paddle.no_grad():
        fast = hybrid_infer.inference(copy.deepcopy(layer))
        for turn in range(4):  # launched, captured, replayed
            given = x * (turn + 1)
            found, expected = fast(given), layer(given)
            assert type(found) is type(expected)
            np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=3e-5, atol=3e-5)
    served(captures=1, bindings=1)
    assert cuda.count["cuGraphLaunch"] and set(cuda.streams) == {memory.current}


@pytest.mark.parametrize("precision, tolerance", [("float16", 1e-2), ("bfloat16", 4e-2)])
def test_in_half_precision(precision: str, tolerance: float, memory: Memory, cuda: FakeCuda) -> None:
    layer, x = encoder()
    with paddle.no_grad():
        found = hybrid_infer.inference(copy.deepcopy(layer), precision_mode=precision)(x)
        np.testing.assert_allclose(found.numpy(), layer(x).numpy(), rtol=tolerance, atol=tolerance)
    served(captures=1)
    assert found.dtype == paddle.float32 and cuda.streams


def test_weights_are_read_where_they_lie(memory: Memory, cuda: FakeCuda) -> None:
    plain, x = encoder()
    fast = hybrid_infer.inference(copy.deepcopy(plain))
    state = {name: each * 0.5 for name, each in plain.state_dict().items()}

    def written(layer: Any) -> None:
        layer.linear1.weight.set_value(layer.linear1.weight * 2)

    def added(layer: Any) -> None:
        layer.linear2.bias.add_(paddle.ones([16]))

    with paddle.no_grad():
        for change in (lambda layer: None, written, lambda layer: layer.set_state_dict(state), added):
            for each in (fast, plain):
                change(each)
            for _ in range(2):
                np.testing.assert_allclose(fast(x).numpy(), plain(x).numpy(), rtol=3e-5, atol=3e-5)
    served(captures=1)


def test_a_device_without_memory_left_is_answered_eagerly(memory: Memory, cuda: FakeCuda) -> None:
    layer, x = encoder()
    with paddle.no_grad():
        fast = hybrid_infer.inference(copy.deepcopy(layer))
        fast(x)
        memory.limit = 10
        np.testing.assert_allclose(fast(x).numpy(), layer(x).numpy(), rtol=3e-5, atol=3e-5)
    assert "Out of memory error on GPU 0" in str(hybrid_infer.stats())


def test_a_static_model(memory: Memory, cuda: FakeCuda, tmp_path: Path) -> None:
    layer, x = encoder()
    hybrid_infer.save(layer, tmp_path / "model", [InputSpec([None, 5, 16])], trainable=False)
    static = hybrid_infer.load(tmp_path / "model")
    with paddle.no_grad():
        for _ in range(3):
            np.testing.assert_allclose(static(x).numpy(), layer(x).numpy(), rtol=3e-5, atol=3e-5)
    assert cuda.count["cuGraphLaunch"] == 2
    memory.limit = 10
    with pytest.raises(StaticModelError, match="Out of memory error on GPU 0"):
        static(x)


def test_sizes_that_do_not_fit_raise_what_eager_raises(memory: Memory) -> None:
    """Nothing is launched on them, which would read behind the smaller of the two; later calls are served."""

    @hybrid_infer.inference()
    def fast(x: Any, w: Any) -> Any:
        return paddle.tanh(x * w)

    def given(*counts: int) -> list[Any]:
        return [paddle.randn([count, 4]) for count in counts]

    with paddle.no_grad():
        for counts in ((3, 5), (5, 3)) * 2:
            for fit in (3, 4, 5):
                x, w = given(fit, fit)
                np.testing.assert_allclose(fast(x, w).numpy(), np.tanh(x.numpy() * w.numpy()), rtol=1e-5)
            with pytest.raises(ValueError, match="Broadcast dimension mismatch"):
                fast(*given(*counts))
    (counted,) = hybrid_infer.stats().values()
    assert counted["captures"] == 2 and not counted["builds"] - 2, counted
