"""OpenVINO serves Paddle layers as the default engine does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

paddle = pytest.importorskip("paddle")
pytest.importorskip("openvino", reason="openvino is not installed")

from paddle_support import Block, grid, served, twice  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


class Hot(Block):
    forward = inference(fallback="error", backend="openvino")(Block.forward)


def test_sizes_that_vary_and_weights_that_change() -> None:
    layer = Hot()
    layer.eval()
    eager = Block.forward.__get__(layer)
    for rows in (2, 3, 5):
        twice(layer, eager, grid(rows, 4))
    layer.linear.weight.set_value(layer.linear.weight * -2)
    twice(layer, eager, grid(2, 4))
    other = Hot()
    other.eval()
    twice(other, Block.forward.__get__(other), grid(2, 4))
    served(captures=2)


PROCESS = """
import sys, paddle
from hybrid_infer import inference, stats

class Layer(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    @inference(fallback="error", backend="openvino")
    def forward(self, x):
        return paddle.nn.functional.relu(self.linear(x)) * 3

layer, x = Layer(), paddle.ones([2, 4])
layer.eval()
with paddle.no_grad():
    for _ in range(2):
        assert paddle.allclose(layer(x), paddle.nn.functional.relu(layer.linear(x)) * 3)
(found,) = stats().values()
print([found[name] for name in ("captures", "builds", "disk_loads", "eager_calls")], "onnxruntime" in sys.modules)
"""


@pytest.mark.processes
def test_the_next_process_captures_and_builds_nothing(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROCESS)
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "HYBRID_INFER_CACHE_DIR": str(tmp_path / "store")}
    runs = [
        subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=environment)
        for _ in range(2)
    ]
    assert [run.stdout for run in runs] == ["[1, 1, 0, 0] False\n", "[0, 0, 1, 0] False\n"], [r.stderr for r in runs]
