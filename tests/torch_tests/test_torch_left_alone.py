"""Methods that no engine makes faster: they are left to the eager method, until something has changed."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from router_support import X, decided
from torch_support import Block, counts, same, twice

import hybrid_infer
from hybrid_infer import _dispatch, _router, _stats, _troubleshooting, inference, load, save, stance

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def automatic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")


def test_a_method_that_no_engine_makes_faster_stays_eager_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = decided(monkeypatch, eager=3e-6, onnxruntime=9e-6)  # on a busy machine it could be the other way round

    class Tiny(Block):
        @inference(fallback="error")  # which it is not: nothing failed
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    layer = Tiny()
    with caplog.at_level(logging.INFO, "hybrid_infer"), torch.no_grad():
        for _ in range(200):
            assert torch.equal(layer(X), X + 1)
    assert len(times) == 1
    assert counts()["fallbacks"] == {_router.SLOWER: 199}
    assert counts()["captures"] == 1 and counts()["bindings"] == 0
    assert not [r for r in caplog.records if r.levelno > logging.INFO]
    [line] = [r.getMessage() for r in caplog.records if "stays eager" in r.getMessage()]
    assert "eager" in line and "onnxruntime" in line and " us" in line


@pytest.mark.parametrize("calls", [5, 13])
def test_the_calls_that_are_looked_at_are_not_the_same_ones_of_each_round(
    monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Of a program that makes so many calls a round: one might be missed for ever that an engine makes faster."""
    decided(monkeypatch, eager=1.0, onnxruntime=9.0)

    class Tiny(Block):
        @inference
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    layer, looked_at = Tiny(), set()
    counters = type(layer).forward.__hybrid_infer__.counters  # type: ignore[attr-defined]
    with torch.no_grad():
        for number in range(calls * (_dispatch._REST + 1)):
            alone = counters.left_alone
            layer(X)
            if counters.left_alone == alone:
                looked_at.add(number % calls)
    assert len(looked_at) == calls


def test_what_a_method_is_called_with_while_it_is_left_alone_can_be_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No engine was faster for the first call, so that the second one of the kind is not looked at any more."""

    class Flagged(Block):
        @inference
        def forward(self, x: torch.Tensor, negative: bool = False) -> torch.Tensor:
            return -x if negative else x + 1

    decided(monkeypatch, eager=1.0)
    layer = Flagged()
    with torch.no_grad():
        layer(X), layer(X), layer(X, negative=True)
    assert counts()["fallbacks"] == {_router.SLOWER: 1}
    save(layer, tmp_path / "model", trainable=False)
    static = load(tmp_path / "model")
    assert torch.equal(static(X), X + 1) and torch.equal(static(X, negative=True), -X)


def test_calls_of_another_size_or_kind_are_measured_though_eager_was_faster_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A warm-up with a small example does not leave a short program eager."""

    class Flagged(Block):
        @inference
        def forward(self, x: torch.Tensor, negative: bool = False) -> torch.Tensor:
            return -x if negative else x + 1

    times = decided(monkeypatch, eager=1.0)
    layer, large = Flagged(), torch.ones(50, 400)
    with torch.no_grad():
        layer(X), layer(X)
        assert len(times) == 1
        layer(X, negative=True)
        assert len(times) == 2
        layer(large), layer(large), layer(X)
    assert len(times) == 3 and counts()["fallbacks"] == {_router.SLOWER: 3}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_without_sizes_is_answered_while_a_method_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    decided(monkeypatch, eager=1.0)
    layer = Hot()
    ragged = torch.nested.nested_tensor([X, X[:1]])
    with torch.no_grad():
        layer(X)
        same(layer(ragged).to_padded_tensor(0.0), Block.forward(layer, ragged).to_padded_tensor(0.0))
    assert type(layer).forward.__hybrid_infer__.states[id(layer)][1].rest == _dispatch._REST - 1  # type: ignore[attr-defined]


def test_an_eager_choice_of_a_busy_machine_is_measured_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time after a longer one; and an engine that is faster then serves."""

    class Hot(Block):
        forward = inference()(Block.forward)

    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    times = decided(monkeypatch, steady=False, eager=1.0, onnxruntime=9.0)
    layer = Hot()

    def calls() -> None:
        for _ in range(2 * _dispatch._REST):
            same(layer(X), Block.forward(layer, X))

    calls()
    for later, measured in ((59.0, 1), (2.0, 2), (290.0, 2), (20.0, 3)):
        now[0] += later
        calls()
        assert len(times) == measured, later
    decided(monkeypatch, eager=9.0, onnxruntime=1.0)
    assert not counts()["hits"]
    now[0] += 1e5
    calls()
    assert counts()["hits"]


def test_an_eager_choice_sees_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        scale = 1.0

        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.scale

    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    layer = Hot()
    with torch.no_grad():
        for n in range(150):
            layer.scale = float(n)
            layer.linear.weight.add_(0.01)
            same(layer(X), Block.forward(layer, X) * n)
    assert counts()["captures"] <= 3  # each time that a method which is left alone is looked at again


def test_large_calls_are_served_among_small_ones_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    eager = Block.forward.__get__(layer)
    large = X[:1].repeat(4000, 1)
    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    twice(layer, eager, X)
    decided(monkeypatch, eager=9.0, onnxruntime=1.0)
    with torch.no_grad():
        for _ in range(200):
            layer(X)
        for _ in range(100):  # by now a method that is left alone for a while has been looked at again
            layer(large)
    hits = counts()["hits"]
    assert hits > 0
    for _ in range(5):
        twice(layer, eager, X)
        twice(layer, eager, large)
    assert counts()["hits"] == hits + 10


def test_a_method_left_alone_says_all_the_same_that_it_may_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    twice(layer, Block.forward.__get__(layer), X)
    with stance("fail_on_compile"):
        layer(X)
        with pytest.raises(hybrid_infer.StanceError):
            layer(X[:1].repeat(4000, 1))


def test_threads_that_count_down_at_once_do_not_leave_a_method_alone_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hot(Block):
        forward = inference()(Block.forward)

    layer = Hot()
    decided(monkeypatch, eager=2.0, onnxruntime=1.0)
    twice(layer, Block.forward.__get__(layer), X)
    type(layer).forward.__hybrid_infer__.states[id(layer)][1].rest = -1  # type: ignore[attr-defined]
    layer(X)
    assert counts()["hits"] == 2


def test_an_eager_choice_is_about_the_attributes_that_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deep(Block):
        steps = 1

        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.steps):
                x = self.linear(x)
            return x

    layer = Deep()
    decided(monkeypatch, eager=1.0, onnxruntime=9.0)
    with torch.no_grad():
        layer(X)
        layer.steps = 3
        decided(monkeypatch, eager=9.0, onnxruntime=1.0)
        for _ in range(70):
            same(layer(X), layer.linear(layer.linear(layer.linear(X))))
    assert counts()["hits"] > 0


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_calls_that_train_are_told_apart_from_those_that_no_engine_makes_faster(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hot(Block):
        @inference
        def forward(self, x: torch.Tensor) -> Any:
            found = Block.forward(self, x)
            return (found, found.detach()) if several else found

    decided(monkeypatch, eager=1.0)
    layer = Hot()
    for _ in range(2):
        with torch.no_grad():
            for _ in range(10):
                layer(X)
        for _ in range(90):
            layer.zero_grad()
            found = layer(X)
            (found[0] if several else found).sum().backward()
    layer.requires_grad_(False)
    for _ in range(5):
        layer(X)  # gradients are on, and none is recorded
    told = counts()["fallbacks"]
    assert told == {_router.SLOWER: 19 + 5, _stats.RECORDED: 180}
    assert _troubleshooting.section(_stats.RECORDED).name == "slower"
