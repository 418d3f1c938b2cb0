"""The stance on the Paddle side; all of it is tested with torch."""

from __future__ import annotations

import pytest
from paddle_support import Block, counts, grid, same

import hybrid_infer
from hybrid_infer import StanceError, inference, stance

pytestmark = pytest.mark.paddle


def test_eager_then_a_miss_then_what_is_ready() -> None:
    layer = inference(Block())
    layer.eval()
    x = grid(2, 4)
    expected = Block.forward(layer, x)
    with stance("eager"):
        same(layer(x), expected)
    with stance("fail_on_compile"), pytest.raises(StanceError, match=r"Block\.forward may not be compiled here"):
        layer(x)
    same(layer(x), expected)
    with stance("fail_on_compile"):
        same(layer(x), expected)
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 1
    hybrid_infer.release(layer)
    with stance("fail_on_compile"):  # from the disk
        same(layer(x), expected)
    assert counts()["captures"] == 1 and counts()["bindings"] == 2
