"""explain() on Paddle: where static models come from, and refusals."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
from paddle_support import grid

from hybrid_infer import explain, inference

pytestmark = pytest.mark.paddle


class Block(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    @inference
    def forward(self, x: Any) -> Any:
        return paddle.nn.functional.relu(self.linear(x))

    @inference
    def noisy(self, x: Any) -> Any:
        return x + paddle.rand(x.shape)


def test_blocks_refusals_and_dimensions() -> None:
    model = paddle.nn.Sequential(Block(), Block())
    model.eval()
    with paddle.no_grad():
        for rows in (3, 5):
            model(grid(rows, 4))
        model[0].noisy(grid(3, 4))
    found = explain(model)
    by_name = {each["method"].rpartition(".")[2]: each for each in found.to_dict()["methods"] if each["called"]}
    forward, noisy = by_name["forward"], by_name["noisy"]
    assert forward["instances"] == 2 and forward["where"] == ["*.forward"]
    (version,) = forward["versions"]
    assert version["dynamic"] == [{"tensor": "x", "axis": 0, "why": "was 3, then 5"}]
    assert version["served_by"] == ["onnxruntime"] and version["largest_error"]["onnxruntime"] < 1e-5
    assert noisy["versions"] == [] and noisy["refusals"][0]["refused"]
    assert "Block.noisy" in str(found) and "Block.noisy" in found.to_html()
