"""The choice between engines and the eager method, for Paddle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import pytest
from paddle_support import Block, counts, grid, twice

from hybrid_infer import _choice, _router, inference

pytestmark = pytest.mark.paddle


@pytest.fixture(autouse=True)
def automatic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")


def test_a_method_that_no_engine_makes_faster_stays_eager() -> None:
    class Tiny(Block):
        @inference(fallback="error")
        def forward(self, x: paddle.Tensor) -> paddle.Tensor:
            return x + 1

    def figures(work: object, runs: dict[str, object]) -> _choice.Figures:
        return _choice.Figures({"eager": 1.0, **dict.fromkeys(runs, 2.0)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_choice, "measure", figures)
        layer = Tiny()
        for _ in range(5):
            twice(layer, lambda x: x + 1, grid(2, 4))
    assert counts()["fallbacks"] == {_router.SLOWER: 9} and counts()["captures"] == 1


def test_small_calls_are_left_alone_while_an_engine_serves_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    def figures(work: Callable[[], Any], runs: dict[str, Callable[[], Any]]) -> _choice.Figures:
        [*_, result] = [run() for run in runs.values()]
        return _choice.Figures({"eager": 5.0, **dict.fromkeys(runs, 1.0 if result.shape[0] > 100 else 9.0)})

    monkeypatch.setattr(_choice, "measure", figures)
    layer, small, large = Hot(), grid(2, 4), grid(4000, 4)
    for _ in range(2):
        twice(layer, lambda x: Block.forward(layer, x), large)
        twice(layer, lambda x: Block.forward(layer, x), small)
    hits = counts()["hits"]
    for _ in range(10):
        twice(layer, lambda x: Block.forward(layer, x), large)
        for _ in range(5):
            twice(layer, lambda x: Block.forward(layer, x), small)
    assert counts()["hits"] == hits + 20
    assert Hot.forward.__hybrid_infer__.counters.left_alone > 80  # type: ignore[attr-defined]


def test_an_engine_that_is_faster_serves() -> None:
    """The same, by the clock: many small operations on weights alone, which an engine does once."""

    class Folded(Block):
        @inference(fallback="error")
        def forward(self, x: paddle.Tensor) -> paddle.Tensor:
            return folded(self, x)

    def folded(layer: Block, x: paddle.Tensor) -> paddle.Tensor:
        scale = layer.linear.bias
        for _ in range(200):
            scale = scale * 1.001
        return x * scale

    layer = Folded()
    twice(layer, lambda x: folded(layer, x), grid(2, 4))
    assert counts()["hits"] == 1 and counts()["eager_calls"] == 0


def test_what_the_eager_method_cannot_compute_is_served_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    monkeypatch.setattr(_choice, "measure", lambda work, runs: (measured.append(1), work())[1])

    class Softmax(Block):
        @inference(fallback="error")
        def forward(self, x: paddle.Tensor) -> paddle.Tensor:
            return paddle.nn.functional.softmax(x)

    x = grid(2, 4).astype("bfloat16")
    layer = Softmax()
    assert layer(x).dtype == layer(x).dtype == paddle.bfloat16
    assert not measured and counts()["hits"] == 2
