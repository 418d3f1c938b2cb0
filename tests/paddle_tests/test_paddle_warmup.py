"""Compilation ahead of calls on the Paddle side; what is not about Paddle is tested with torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import paddle
import pytest
from paddle_support import Block, counts, grid, same

from hybrid_infer import InputSpec, inference, stance, warmup

pytestmark = pytest.mark.paddle


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with paddle.no_grad():
        yield


def test_specs_and_tensors_in_one_go() -> None:
    layer = inference(Block())
    layer.eval()
    found = warmup(layer, InputSpec([None, 4]), [grid(1, 4)], [grid(3, 4)])
    assert [each.outcome for each in found] == ["compiled", "ready", "ready"]  # an open size takes 1 as well
    with stance("fail_on_compile"):
        for rows in (1, 2, 11):
            same(layer(grid(rows, 4)), Block.forward(layer, grid(rows, 4)))
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 0


def test_the_option_with_several_inputs_of_one_open_size() -> None:
    class Model(paddle.nn.Layer):
        @inference(input_spec=[InputSpec([None, None, 8]), InputSpec([None, None], "int64")])
        def forward(self, x: Any, ids: Any) -> Any:
            return x + paddle.unsqueeze(ids, -1).astype("float32")

    model = Model()
    model.eval()
    x, ids = grid(2, 5, 8), paddle.ones([2, 5], "int64")
    same(model(x, ids), x + 1)
    with stance("fail_on_compile"):
        same(model(grid(3, 7, 8), paddle.ones([3, 7], "int64")), grid(3, 7, 8) + 1)
    # The first call is compared: the sizes that it was compiled at ahead are of another magnitude.
    assert counts()["captures"] == 1 and counts()["hits"] == 1, counts()
