"""Element types that Paddle computes on a GPU alone: an engine serves them, though eager code cannot run."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import hybrid_infer

paddle = pytest.importorskip("paddle")

pytestmark = pytest.mark.paddle


class Softmax(paddle.nn.Layer):
    def forward(self, x):
        return paddle.nn.functional.softmax(x.cast("bfloat16"), -1).cast("float32")


def test_paddle_serves_a_type_for_which_eager_has_no_kernel(caplog: pytest.LogCaptureFixture) -> None:
    x = paddle.to_tensor(np.linspace(-3, 3, 24, dtype="float32").reshape(2, 12))
    with pytest.raises(RuntimeError, match="kernel with key"):
        Softmax()(x)
    expected = paddle.nn.functional.softmax(x, -1).numpy()
    layer = hybrid_infer.inference(Softmax())
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        for _ in range(2):
            np.testing.assert_allclose(layer(x).numpy(), expected, atol=1e-2)
    assert caplog.text.count("not compared with the eager method, which fails for this element type") == 1
    (counts,) = hybrid_infer.stats().values()
    assert (counts["captures"], counts["eager_calls"], counts["fallbacks"]) == (1, 0, {})


def test_paddle_fails_as_eager_does_where_no_engine_could_know_better() -> None:
    layer = hybrid_infer.inference(Softmax())
    with pytest.raises(Exception) as eager:
        Softmax()("a")
    with pytest.raises(type(eager.value)):
        layer("a")
