"""``to_static()``: trained through ``paddle.jit.to_static``, served by engines, with control flow on tensors."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import paddle
import pytest
import torch
from paddle_support import Block, counts, grid, same, served

from hybrid_infer import InputSpec, OptionError, stance, to_static

pytestmark = pytest.mark.paddle

X, Y = grid(8, 4), grid(8, 1)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of each call of ``paddle.jit.to_static``."""
    seen: list[dict[str, Any]] = []
    original = paddle.jit.to_static

    def note(function: Callable[..., Any], **options: Any) -> Any:
        if not options.get("full_graph"):  # as Paddle itself calls it for the parts that it has found
            seen.append(options)
        return original(function, **options)

    monkeypatch.setattr(paddle.jit, "to_static", note)
    return seen


class Plain(paddle.nn.Layer):
    """One class, trained and then served; `forward` is not decorated."""

    def __init__(self) -> None:
        super().__init__()
        paddle.seed(0)
        self.one, self.two, self.drop = paddle.nn.Linear(4, 8), paddle.nn.Linear(8, 1), paddle.nn.Dropout(0.0)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.two(self.drop(paddle.nn.functional.relu(self.one(x)))) * scale


def train(model: Any, steps: int = 30) -> list[float]:
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    losses = []
    for _ in range(steps):
        loss = paddle.nn.functional.mse_loss(model(X), Y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    return losses


def test_one_class_is_trained_and_then_served(compiled: list[Any]) -> None:
    class Model(Plain):
        forward = to_static(Plain.forward)

    model, plain = Model(), Plain()
    losses = train(model)
    assert losses[-1] < losses[0] / 2 and losses == pytest.approx(train(plain), rel=1e-3)
    assert len(compiled) == 1 and not counts()["captures"]
    model.eval(), plain.eval()
    with paddle.no_grad():
        for _ in range(2):
            same(model(X), plain(X), 1e-3)
    served(captures=1)
    model.train()
    assert train(model, 3)[-1] < losses[-1]
    model.eval()
    same(model(X), Plain.forward(model, X))


@pytest.mark.parametrize("form", ["layer", "bound method", "another name for self"])
def test_every_form_trains_and_serves(form: str, compiled: list[Any]) -> None:
    model: Any = Plain()
    if form == "layer":
        assert to_static(model, [InputSpec([None, 4])]) is model
    elif form == "bound method":
        model.forward = to_static(model.forward)
    else:

        class Other(Plain):
            @to_static
            def forward(this, x: Any) -> Any:
                return Plain.forward(this, x)

        model = Other()
    losses = train(model, 5)
    assert losses[-1] < losses[0] and len(compiled) == 1
    model.eval()
    expected = Plain.forward(model, X)
    with paddle.no_grad():
        same(model(X), expected)
    served(captures=1)


def test_a_build_strategy_is_handed_on_and_refused_for_another_framework(compiled: list[Any]) -> None:
    strategy = paddle.static.BuildStrategy()
    model = to_static(Plain(), build_strategy=strategy)
    train(model, 2)
    assert compiled == [{"full_graph": False, "build_strategy": strategy}]
    with pytest.raises(OptionError, match="None for a layer of torch"):
        to_static(torch.nn.Linear(2, 2), build_strategy=strategy)
    with pytest.raises(OptionError, match=r"paddle\.static\.BuildStrategy"):
        to_static(Plain(), build_strategy={"fuse": True})


def test_a_function_is_trained_where_something_needs_a_gradient(compiled: list[Any]) -> None:
    @to_static
    def double(x: Any) -> Any:
        return x * 2

    x = grid(2, 4)
    same(double(x), x * 2)
    assert not compiled and counts()["captures"] == 1
    x.stop_gradient = False
    double(x).sum().backward()
    same(x.grad, paddle.full([2, 4], 2.0))
    assert len(compiled) == 1


def test_a_static_path_that_fails_is_logged_and_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(function: Any, **options: Any) -> Any:
        raise OSError("no compiler")

    monkeypatch.setattr(paddle.jit, "to_static", broken)
    model = to_static(Plain())
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        losses = train(model, 10)
    assert losses[-1] < losses[0]
    assert caplog.text.count("Plain.forward is trained eagerly: the static path of paddle failed: OSError") == 1


def test_copies_follow_the_instance_and_the_eager_stance_leaves_the_compiler_out(compiled: list[Any]) -> None:
    layer = to_static(Block())
    other = copy.deepcopy(layer)
    assert other.forward.__self__ is other and type(other.forward) is type(layer.forward)
    with stance("eager"):
        same(other(X), Block.forward(layer, X))
    assert not compiled


class Flow(paddle.nn.Layer):
    """A branch with a layer on either side, and a loop that takes as many turns as the values ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        if x.mean() > 0:  # noqa: SIM108
            y = self.one(x)
        else:
            y = self.two(x) * 2
        count = paddle.zeros([], "int64")
        while y.abs().sum() < 50:
            y = y * 1.5
            count = count + 1
        return y, count


def test_a_branch_and_a_loop_on_tensors_are_right_on_both_sides() -> None:
    class Model(Flow):
        forward = to_static(Flow.forward)

    turns = set()
    for _ in range(2):
        model = Model()
        model.eval()
        with paddle.no_grad():
            for x in (grid(2, 4) + 1, grid(2, 4) - 1, grid(2, 4) * 0.1 - 1, grid(2, 4) + 90):
                expected = Flow.forward(model, x)
                same(model(x), expected, 1e-4)
                turns.add(int(expected[1]))
    assert len(turns) > 2 and 0 in turns
    served(captures=1)


def test_a_branch_and_a_loop_are_trained() -> None:
    class Model(Flow):
        forward = to_static(Flow.forward)

    model, plain = Model(), Flow()
    plain.set_state_dict(model.state_dict())
    for x in (grid(2, 4) + 1, grid(2, 4) - 1):
        for layer in (model, plain):
            layer(x)[0].sum().backward()
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        same(mine.grad, theirs.grad, 1e-4)
