"""Training through a decorated method is left to the eager method, which need not compute it twice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import counts, layer_class

from hybrid_infer import _backwards, _contests, _serve, inference
from hybrid_infer._backwards import Backwards


def _answers(backwards: Backwards, followed: list[bool]) -> list[bool]:
    """Who answers each of some calls, of which some are `followed` by a backward pass: is it the eager method?"""
    eager = []
    for each in followed:
        eager.append(backwards.eager())
        if each and not eager[-1]:
            backwards.came()
    return eager


def test_where_no_backward_pass_comes_the_engine_answers() -> None:
    assert not any(_answers(Backwards(), [False] * 1000))


def test_a_program_that_trains_is_answered_eagerly_but_for_one_call_of_many() -> None:
    eager = _answers(Backwards(), [True] * 1000)
    assert not any(eager[:2]) and all(eager[2:63]) and eager.count(False) == pytest.approx(1000 / 62, abs=2)


def test_many_blocks_of_one_class_are_told_by_the_first_step() -> None:
    backwards = Backwards()
    assert not any(_answers(backwards, [False] * 28))
    for _ in range(28):
        backwards.came()
    assert all(_answers(backwards, [False] * 28))


def test_a_program_that_has_trained_is_served_again() -> None:
    backwards = Backwards()
    _answers(backwards, [True] * 500)
    eager = _answers(backwards, [False] * 1000)
    assert any(eager[:100]) and not any(eager[300:])
    assert all(_answers(backwards, [True] * 65)[30:])


def test_a_single_backward_pass_is_no_training() -> None:
    assert not any(_answers(Backwards(), [True] + [False] * 300))


def test_backward_passes_of_few_calls_make_no_difference() -> None:
    eager = _answers(Backwards(), ([False] * 99 + [True]) * 20)
    assert not any(eager)


@given(st.lists(st.booleans(), max_size=600))
def test_an_engine_is_asked_again_whatever_came_before(before: list[bool]) -> None:
    backwards = Backwards()
    _answers(backwards, before)
    assert not all(_answers(backwards, [False] * 63))
    assert not any(_answers(backwards, [False] * 400)[300:])


@pytest.mark.parametrize("named", [False, True])
def test_a_layer_that_is_trained(framework: Any, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return framework.tanh(self.linear(x))

    if not named:
        monkeypatch.setattr(_serve, "_gain", lambda choice: 1.0)  # as of an engine that was measured
    layer, x = Small(), framework.ones([2, 4])
    layer.eval()
    hot = inference(layer, fallback="error", weights="live")
    optimiser = (
        framework.optim.SGD(layer.parameters(), lr=0.1)
        if framework.__name__ == "torch"
        else framework.optimizer.SGD(0.1, parameters=layer.parameters())
    )
    clear = getattr(optimiser, "clear_grad", None) or optimiser.zero_grad
    hot(x)
    before = counts()
    for _ in range(70):
        clear()
        hot(x).sum().backward()
        found = layer.linear.weight.grad.numpy().copy()
        clear()
        framework.tanh(layer.linear(x)).sum().backward()
        assert abs(found - layer.linear.weight.grad.numpy()).max() < 1e-5
        optimiser.step()
    after = counts()
    eager, hits = after["eager_calls"] - before["eager_calls"], after["hits"] - before["hits"]
    if named:
        assert (eager, hits) == (0, 70)
        return
    assert after["fallbacks"] == {_backwards.REASON: eager} and (eager, hits) == (67, 3)
    with framework.no_grad():
        hot(x)
    assert counts()["hits"] == after["hits"] + 1


def test_named_engines_have_none() -> None:
    route = SimpleNamespace(scales={1: float("inf")}, held=None)
    assert _backwards.of(route) is None and _contests.of(route, "a") is None
