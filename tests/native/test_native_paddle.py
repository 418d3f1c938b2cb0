"""A Paddle encoder served by the native engine."""

from __future__ import annotations

import numpy as np
import pytest
from native_support import ops
from support import served

import hybrid_infer
from hybrid_infer.backends.native import _plan, engine

paddle = pytest.importorskip("paddle")
pytestmark = pytest.mark.paddle


def test_an_encoder_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[_plan.Plan] = []
    prepare = engine.Native.prepare

    def noted(self: engine.Native, *arguments: object) -> dict[str, bytes]:
        files = prepare(self, *arguments)  # type: ignore[arg-type]
        plans.append(_plan.restore(files[engine.PLAN], files[engine.CONSTANTS]))
        return files

    monkeypatch.setattr(engine.Native, "prepare", noted)
    paddle.seed(0)
    layer = paddle.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", normalize_before=True)
    layer.eval()
    x = paddle.randn([2, 5, 16])
    with paddle.no_grad():
        expected = layer(x)
        fast = hybrid_infer.inference(layer, backend="native")
        for _ in range(2):
            found = fast(x)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-5, atol=2e-5)
    served(captures=1)
    (plan,) = plans
    found_ops = ops(plan)
    assert (found_ops["attention"], found_ops["gemm"], found_ops["row"]) == (1, 6, 2), found_ops
    assert any("erf GELU stays apart" in each["why"] for each in plan.decisions)


def test_windows_of_a_signal_whose_places_are_constants() -> None:
    """Of a range that is computed when a plan is made, no run tells the length."""

    def windows(x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
        return paddle.signal.frame(x, 8, 4), paddle.signal.stft(x, 16).abs()

    fast = hybrid_infer.inference(windows, backend="native", device="cpu", fallback="error")
    for length in (64, 64, 80, 100):
        x = paddle.to_tensor(np.random.default_rng(length).standard_normal((2, length), dtype="float32"))
        with paddle.no_grad():
            for found, expected in zip(fast(x), windows(x), strict=True):
                np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-5, atol=2e-5)
    served(captures=2)
