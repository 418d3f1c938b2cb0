"""Compilation in the background on the Paddle side; what is not about Paddle is tested with torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import paddle
import pytest
from paddle_support import Block, counts, grid, same

from hybrid_infer import _background, inference, stance
from hybrid_infer.capture import _forked

pytestmark = pytest.mark.paddle


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with paddle.no_grad():
        yield
    done()


def done() -> None:
    """Wait until nothing is compiled."""
    deadline = time.monotonic() + 120
    while (thread := _background._worker.thread) is not None:
        thread.join(0.1)
        assert time.monotonic() < deadline


@pytest.mark.parametrize("forked", [True, False], ids=["a child", "a thread"])
def test_eager_answers_until_the_plan_is_there(forked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_forked, "possible", lambda frontend: forked)
    layer = inference(Block(), background=True)
    layer.eval()
    for rows in (2, 3):
        x = grid(rows, 4)
        expected = Block.forward(layer, x)
        same(layer(x), expected)
        x.fill_(7.0)
        done()
        same(layer(grid(rows, 4)), expected)
    found = counts()
    assert (found["captures"], found["hits"], found["eager_calls"]) == (2, 2, 2), found


def test_the_stance_and_a_method_with_a_branch_on_a_tensor() -> None:
    @inference
    def branch(x: Any) -> Any:
        if x.sum() > 0:
            return x + 1
        return x - 1

    with stance("background"):
        for x in (grid(2, 4) + 1, grid(2, 4) - 1):
            same(branch(x), branch.__wrapped__(x))
            done()
            same(branch(x), branch.__wrapped__(x))
    assert counts()["captures"] <= 1
