"""What another thread changes while a static model is loaded counts from the next call on."""

from __future__ import annotations

from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, grid  # noqa: E402

from hybrid_infer import inference  # noqa: E402
from hybrid_infer.backends import onnxruntime  # noqa: E402

pytestmark = pytest.mark.paddle
X = grid(2, 4)


class Layer(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([4], default_initializer=paddle.nn.initializer.Constant(1.0))
        self.scale = 1.0
        self.eval()

    def compute(self, x: Any) -> Any:
        return x * self.weight * self.scale


def written(layer: Layer) -> None:
    layer.weight.set_value(paddle.full([4], 7.0))


def added(layer: Layer) -> None:
    layer.weight.add_(paddle.full([4], 6.0))


def replaced(layer: Layer) -> None:
    layer.weight = paddle.create_parameter([4], "float32", default_initializer=paddle.nn.initializer.Constant(7.0))


def scaled(layer: Layer) -> None:
    layer.scale = 7.0


@pytest.mark.parametrize("change", [written, added, replaced, scaled])
@pytest.mark.parametrize("weights", ["bound", "live", "auto"])
def test_a_change_while_a_program_is_loaded(change: Any, weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Layer):
        forward = inference(verify="off", weights=weights)(Layer.compute)

    layer, load, left = Hot(), onnxruntime.OnnxRuntime.load, [change]

    def loading(*args: Any, **kwargs: Any) -> Any:
        found = load(*args, **kwargs)
        if left:
            left.pop()(layer)
        return found

    with paddle.no_grad():
        with monkeypatch.context() as patch:
            patch.setattr(onnxruntime.OnnxRuntime, "load", loading)
            layer(X)
        for _ in range(2):
            assert paddle.allclose(layer(X), X * 7.0).item()
    assert counts()["eager_calls"] <= 1 and counts()["hits"] >= 1
