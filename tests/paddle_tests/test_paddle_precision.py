"""Precision and passes on graphs that Paddle's converter wrote."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")
onnx = pytest.importorskip("onnx")

from paddle_support import counts, grid, same, served, twice  # noqa: E402

from hybrid_infer import inference  # noqa: E402
from hybrid_infer.backends import engine  # noqa: E402

pytestmark = pytest.mark.paddle


class Attention(paddle.nn.Layer):
    """A normalisation, products with weights and among each other, a softmax, a convolution, a reduction."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = paddle.nn.LayerNorm(width)
        self.q, self.k, self.v = (paddle.nn.Linear(width, width) for _ in range(3))
        self.conv = paddle.nn.Conv1D(width, width, 3, padding=1)

    def forward(self, x: Any) -> Any:
        n = self.norm(x)
        scores = paddle.matmul(self.q(n), self.k(n), transpose_y=True) * 0.2
        mixed = paddle.matmul(paddle.nn.functional.softmax(scores, axis=-1), self.v(n))
        return self.conv(mixed.transpose([0, 2, 1])).reshape([x.shape[0], -1]), x.mean(axis=-1)


@pytest.fixture
def layer() -> Any:
    paddle.seed(0)
    found = Attention()
    found.eval()
    return found


def copy_of(layer: Any) -> Any:
    found = Attention()
    found.eval()
    found.set_state_dict(layer.state_dict())
    return found


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_arithmetic_in_a_lower_precision(layer: Any, backend: str, precision: str) -> None:
    x = grid(2, 9, 32)
    refused = backend == "openvino" and not engine(backend).native(precision)
    hot = inference(copy_of(layer), backend=backend, precision_mode=precision, fallback="eager" if refused else "error")
    if refused:
        twice(hot, layer, x)
        assert f"openvino has no arithmetic in {precision}" in next(iter(counts()["fallbacks"]))
        return
    with paddle.no_grad():
        expected = layer(x)
        same(hot(x), expected, 5e-2)
        found = hot(x)
    largest = float(np.abs(found[0].numpy() - expected[0].numpy()).max())
    assert 1e-6 < largest < (3e-2 if precision == "bfloat16" else 4e-3)
    # A reduction is no product; on processors that add in float16 OpenVINO's results are of that type all the same.
    closest = 1e-3 if (backend, precision) == ("openvino", "float16") else 1e-6
    np.testing.assert_allclose(found[1].numpy(), expected[1].numpy(), atol=closest)
    served(captures=1)


def test_a_changed_weight_is_rounded_anew(layer: Any) -> None:
    x = grid(2, 9, 32)
    hot = inference(copy_of(layer), precision_mode="bfloat16", fallback="error")
    with paddle.no_grad():
        for _ in range(2):
            for each in (hot, layer):
                each.v.weight.set_value(each.v.weight * -2)
            for _ in range(2):
                same(hot(x), layer(x), 5e-2)
    served(captures=1)


def test_what_the_converter_spelled_out_is_gone_from_the_graph(
    layer: Any, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        twice(inference(copy_of(layer), fallback="error", switch_ir_debug=True), layer, grid(2, 9, 32))
    (line,) = [r.getMessage() for r in caplog.records if "is written after each pass to" in r.getMessage()]
    folder = Path(line.rpartition(" to ")[2])
    assert folder.is_relative_to(store)
    before, after = (
        Counter(node.op_type for node in onnx.load(str(folder / name)).graph.node)
        for name in ("0-captured.onnx", "3-prune.onnx")
    )
    assert before["Identity"] > 2 and not after["Identity"]
    assert before["Constant"] > after["Constant"]
    assert before["MatMul"] == after["MatMul"] == 5
    served(captures=1)


@pytest.mark.parametrize("options", [{"switch_ir_optim": False}, {"delete_pass_lists": ["identity", "fold"]}], ids=str)
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_passes_that_are_left_out(layer: Any, backend: str, options: dict[str, Any]) -> None:
    twice(inference(copy_of(layer), fallback="error", backend=backend, **options), layer, grid(2, 9, 32))
    served(captures=1)
