"""Where an engine saves little, calls in which gradients are recorded go where they are answered faster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import _backwards, _contests, _dispatch, _gradients, _serve, inference
from hybrid_infer._contests import Contest


def test_each_has_three_turns_and_the_faster_one_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(_contests, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def takes(seconds: float) -> None:
        now[0] += seconds

    for eager, winner in ((1.0, True), (3.0, False)):
        contest, turns = Contest(), []
        for _ in range(10):
            turns.append(contest.eager)
            contest.timed(contest.eager, lambda: takes(eager if turns[-1] else 2.0))  # noqa: B023
        assert turns == [False, True] * 3 + [winner] * 4


def test_an_answer_that_raises_is_no_turn() -> None:
    contest = Contest()
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            contest.timed(False, lambda: 1 / 0)
    assert contest.open and not contest.eager


def test_of_few_calls_and_where_little_is_saved_alone() -> None:
    def route(saved: dict[int, float]) -> Any:
        return SimpleNamespace(scales=saved, held=SimpleNamespace(contests={}), program=SimpleNamespace(engine="e"))

    little = route({3: 1e-5})
    assert _contests.of(little, "a") is _contests.of(little, "a") is not _contests.of(little, "b")
    for number in range(200):
        _contests.of(little, number)
    assert _contests.of(little, "another") is None
    for saved in ({}, {3: float("inf")}, {3: 1e-3, 4: 1.0}):
        assert _contests.of(route(saved), "a") is None


@pytest.mark.parametrize("slower", ["eager", "engine"])
def test_a_layer_that_saves_little(framework: Any, slower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return framework.tanh(self.linear(x))

    monkeypatch.setattr(_serve, "_gain", lambda choice: 1e-5)
    monkeypatch.setattr(_backwards, "of", lambda route: None)
    layer, x, now = Small(), framework.ones([2, 4]), [0.0]
    layer.eval()
    hot = inference(layer, fallback="error", weights="live")  # which no backward pass has bound anew
    hot(x)
    monkeypatch.setattr(_contests, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def taking(seconds: float, answer: Any) -> Any:
        def taken(*given: Any) -> Any:
            now[0] += seconds
            return answer(*given)

        return taken

    monkeypatch.setattr(_dispatch.State, "eagerly", taking(2.0 if slower == "eager" else 0.5, _dispatch.State.eagerly))
    monkeypatch.setattr(_gradients, "differentiable", taking(1.0, _gradients.differentiable))
    before = counts()
    clear = getattr(layer, "clear_gradients", None) or layer.zero_grad

    def gradient(result: Any) -> Any:
        clear()
        result.sum().backward()
        return layer.linear.weight.grad.numpy().copy()

    for _ in range(10):
        assert abs(gradient(hot(x)) - gradient(framework.tanh(layer.linear(x)))).max() < 1e-5
    after = counts()
    eager = after["eager_calls"] - before["eager_calls"]
    assert (eager, after["hits"] - before["hits"]) == ((3, 7) if slower == "eager" else (7, 3))
    assert after["fallbacks"] == {_contests.REASON: eager}
    with framework.no_grad():
        hot(x)
    assert counts()["hits"] == after["hits"] + 1
