"""Calls for which the eager method is the faster one are left alone while an engine serves others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from router_support import X
from torch_support import Block, counts, same

from hybrid_infer import _choice, _lulls, _router, inference, load, save

pytestmark = pytest.mark.torch

LARGE = X[:1].repeat(4000, 1)


@pytest.fixture(autouse=True)
def automatic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")


def left_alone(layer: Any) -> int:
    return int(type(layer).forward.__hybrid_infer__.counters.left_alone)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An engine is faster where the results are large, the eager method else; grows by one at each measurement."""
    found: list[int] = []

    def measure(work: Callable[[], Any], runs: Mapping[str, Callable[[], Any]]) -> _choice.Figures:
        [*_, result] = [run() for run in runs.values()]
        size = sum(each.numel() for each in (result if isinstance(result, list) else [result]))
        found.append(size)
        return _choice.Figures({"eager": 5.0, **dict.fromkeys(runs, 1.0 if size > 1000 else 9.0)})

    monkeypatch.setattr(_choice, "measure", measure)
    return found


def test_small_calls_are_left_alone_while_an_engine_serves_large_ones(times: list[int]) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    with torch.no_grad():
        layer(LARGE), layer(X), layer(LARGE)
        hits = counts()["hits"]
        for n in range(50):
            same(layer(LARGE), Block.forward(layer, LARGE))
            for i in range(10):
                x = X[: 1 + i % 2] + n
                same(layer(x), Block.forward(layer, x))
    assert counts()["hits"] == hits + 50
    assert left_alone(layer) > 400 and set(counts()["fallbacks"]) == {_router.SLOWER}


def test_calls_that_look_like_those_left_alone_are_served_where_they_are_larger(
    times: list[int],
) -> None:
    """How large the tensors in a list are is not told at a glance."""

    class Hot(Block):
        @inference
        def forward(self, x: torch.Tensor, more: list[torch.Tensor]) -> list[torch.Tensor]:
            return [self.linear(each).relu() for each in (x, *more)]

    layer = Hot()
    small, large = [X[:1]], [LARGE]
    with torch.no_grad():
        layer(X, large), layer(X, small), layer(X, large)
        for _ in range(20):
            layer(X, small)
        alone = left_alone(layer)
        assert alone
        for _ in range(_lulls._LONGEST):  # a lull at most
            layer(X, large)
        hits = counts()["hits"]
        for _ in range(20):
            same(layer(X, large), [Block.forward(layer, X), Block.forward(layer, LARGE)])
            same(layer(X, small), [Block.forward(layer, X), Block.forward(layer, X[:1])])
    assert counts()["hits"] == hits + 20 and left_alone(layer) == alone


def test_the_first_calls_that_are_left_alone_are_measured_and_saved_where_they_are_of_another_kind(
    times: list[int], tmp_path: Path
) -> None:
    class Flagged(Block):
        @inference
        def forward(self, x: torch.Tensor, flags: dict[str, bool]) -> torch.Tensor:
            return -x if flags["negative"] else x + 1

    layer = Flagged()
    yes, no = {"negative": True}, {"negative": False}
    with torch.no_grad():
        layer(LARGE, no), layer(X, no), layer(LARGE, no)
        for _ in range(9):
            layer(X, no)
        measured = len(times)
        [kind] = type(layer).forward.__hybrid_infer__.states[id(layer)][1].lulls.known.values()
        assert kind.left
        same(layer(X, yes), -X)
        assert len(times) == measured + 1
    save(layer, tmp_path / "model", trainable=False)
    static = load(tmp_path / "model")
    same(static(X, no), X + 1)
    same(static(X, yes), -X)


def test_flags_and_numbers_are_told_apart_at_a_glance() -> None:

    lulls = _lulls.Lulls(_frontend())
    calls: list[tuple[Any, dict[str, Any]]] = [
        ((X,), {}), ((X,), {"flag": True}), ((X,), {"flag": False}), ((X,), {"flag": None}), ((X,), {"flag": 1}),
        ((X, True), {}), ((X, "a"), {}), ((X, "b"), {}), ((X, []), {}), ((LARGE,), {}), ((), {"x": X}),
    ]  # fmt: skip
    assert len({lulls.glance(args, kwargs) for args, kwargs in calls}) == len(calls)
    assert lulls.glance((X, 1), {}) == lulls.glance((X, 2), {}) == lulls.glance((X + 1, 3), {})
    assert lulls.glance(([X], 1), {}) is None and lulls.glance((X[:0],), {}) is None


def test_no_more_kinds_are_kept_than_a_few() -> None:
    lulls = _lulls.Lulls(_frontend())
    for n in range(5 * _lulls._KINDS):
        lulls.lost(lulls.glance((X, str(n)), {}))
    assert 0 < len(lulls.known) <= _lulls._KINDS


def test_lulls_grow_until_an_engine_has_answered() -> None:
    lulls = _lulls.Lulls(_frontend())
    glance = lulls.glance((X,), {})

    def lull() -> int:
        count = 0
        while lulls.take(glance):
            count += 1
        return count

    def lulls_after(looks: int) -> list[int]:
        found = []
        for _ in range(looks):
            lulls.lost(glance)
            found.append(lull())
        return found

    assert lulls_after(11) == [0, 1, 2, 4, 8, 16, 32, 64, 66, 66, 66]
    lulls.won(glance)
    lulls.won(glance)
    assert lulls_after(9) == [0, 0, 0, 0, 0, 0, 0, 1, 2]
    for _ in range(5):
        lulls.lost(glance)
        lulls.won(glance)
    assert lulls_after(_lulls._MOST) == [0] * (_lulls._MOST - 1) + [1]


def test_calls_that_an_engine_serves_are_looked_at_in_any_rhythm() -> None:
    for period in (2, 3, 4, 5, 6, 12, 13, 26, 65):
        for served in range(period):
            lulls, looked = _lulls.Lulls(_frontend()), 0
            glance = lulls.glance((X,), {})
            for n in range(2000 + 70 * period):
                if not lulls.take(glance):
                    looked += n > 2000 and n % period == served
                    lulls.lost(glance)
            assert looked, (period, served)


def _frontend() -> Any:
    from hybrid_infer.frontends.torch import TorchFrontend

    return TorchFrontend()
