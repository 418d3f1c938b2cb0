"""``to_static()``: trained through ``torch.compile``, served by engines."""

from __future__ import annotations

import copy
import doctest
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served

from hybrid_infer import InputSpec, OptionError, _to_static, inference, is_inference_mode, stance, to_static

pytestmark = pytest.mark.torch

X, Y = torch.linspace(-1, 1, 32).reshape(8, 4), torch.linspace(0, 1, 8).reshape(8, 1)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What went through ``torch.compile``, whose backend here is one that needs no C++ compiler."""
    torch._dynamo.reset()
    seen: list[Any] = []
    original = torch.compile

    def compile_eagerly(function: Callable[..., Any], **options: Any) -> Any:
        seen.append(function)
        return original(function, **{"backend": "aot_eager", **options})

    monkeypatch.setattr(torch, "compile", compile_eagerly)
    return seen


class Plain(torch.nn.Module):
    """One class, trained and then served; `forward` is not decorated."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.drop = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1), torch.nn.Dropout(0.0)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.two(self.drop(torch.relu(self.one(x)))) * scale


def decorated() -> Any:
    """The class with its method decorated, anew for each test: a method opens its store once."""

    class Model(Plain):
        forward = to_static(Plain.forward)

    return Model


def train(model: Any, steps: int = 30) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(X), Y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_one_class_is_trained_and_then_served(compiled: list[Any]) -> None:
    model, plain = decorated()(), Plain()
    losses = train(model)
    assert losses[-1] < losses[0] / 2 and losses == pytest.approx(train(plain), rel=1e-4)
    assert compiled == [Plain.forward] and not counts()["captures"]
    model.eval(), plain.eval()
    with torch.no_grad():
        for _ in range(2):
            same(model(X), plain(X), 1e-4)
    served(captures=1)
    model.train()
    assert train(model, 3)[-1] < losses[-1]
    model.eval()
    same(model(X), Plain.forward(model, X))


@pytest.mark.parametrize("form", ["layer", "bound method", "factory", "another method"])
def test_every_form_trains_and_serves(form: str, compiled: list[Any]) -> None:
    model: Any = Plain()
    expected = Plain.forward(model, X)
    if form == "layer":
        assert to_static(model) is model
    elif form == "bound method":
        model.forward = to_static(model.forward)
    elif form == "factory":
        model = to_static(input_spec=[InputSpec([None, 4])])(model)
    else:
        class Other(Plain):
            @to_static(max_versions=2)
            def compute(self, x: torch.Tensor) -> torch.Tensor:
                return Plain.forward(self, x)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.compute(x)

        model = Other()
    losses = train(model, 5)
    assert losses[-1] < losses[0] and len(compiled) == 1
    model.load_state_dict(Plain().state_dict())
    model.eval()
    with torch.no_grad():
        same(model(X), expected, 1e-4)
    served(captures=1)
    assert form != "layer" or is_inference_mode(model)


def test_an_open_size_is_compiled_for_before_the_first_call_that_is_served() -> None:
    model = to_static(Plain(), [InputSpec([None, 4])])
    train(model, 1)
    assert counts()["captures"] == 0
    model.eval()
    with torch.no_grad():
        model(X)
        with stance("fail_on_compile"):
            model(X[:3])
    served(captures=1)


def test_evaluation_with_gradients_on_is_served_and_gradients_flow(compiled: list[Any]) -> None:
    model, plain = decorated()().eval(), Plain().eval()
    model(X).sum().backward(), plain(X).sum().backward()
    same(model.one.weight.grad, plain.one.weight.grad)
    assert not compiled and counts()["captures"] == 1


def test_a_function_is_trained_where_something_needs_a_gradient(compiled: list[Any]) -> None:
    layer = Plain()

    @to_static
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mse_loss(layer(x), y)

    loss(X, Y).backward()
    assert layer.one.weight.grad is not None and len(compiled) == 1
    layer.eval()
    with torch.no_grad():
        same(loss(X, Y), loss.__wrapped__(X, Y))
        same(loss(X, Y), loss.__wrapped__(X, Y))
    assert counts()["captures"] == 1 and len(compiled) == 1

    double = to_static(lambda x: x * 2)
    x = X.clone().requires_grad_()
    double(x).sum().backward()
    same(x.grad, torch.full_like(X, 2))
    assert len(compiled) == 2


def test_copies_and_pickles_follow_the_instance() -> None:
    layer = to_static(Block(), max_versions=3)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.forward.__self__ is other and type(other.forward) is type(layer.forward)
        assert other.forward.__hybrid_infer__.options.max_versions == 3
        with torch.no_grad():
            other.linear.weight.zero_()
        other.eval()
        same(other(X), Block.forward(other, X))


def test_a_build_strategy_is_refused() -> None:
    for strategy in (object(), {"fuse": True}):
        with pytest.raises(OptionError, match=r"paddle\.static\.BuildStrategy"):
            to_static(Plain(), build_strategy=strategy)
    with pytest.raises(TypeError, match="no option 'full_grph'"):
        to_static(Plain(), full_grph=True)


def test_a_static_path_that_fails_is_logged_and_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(function: Any, **options: Any) -> Any:
        raise OSError("no C++ compiler")

    monkeypatch.setattr(torch, "compile", broken)
    model = to_static(Plain())
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        losses = train(model, 10)
    assert losses[-1] < losses[0]
    assert caplog.text.count("Plain.forward is trained eagerly: the static path of torch failed: OSError: no C++") == 1
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        to_static(Plain())(torch.ones(2, 5))


def test_the_eager_stance_and_other_compilers_see_the_plain_method(compiled: list[Any]) -> None:
    model = decorated()()
    with stance("eager"):
        train(model, 2)
    assert not compiled
    whole = torch._dynamo.optimize("eager", nopython=True)(lambda x: model(x) + 1)
    same(whole(X), Plain.forward(model, X) + 1)
    assert not compiled


def test_decorated_twice_is_decorated_once() -> None:
    forward = decorated().forward
    assert to_static(forward) is forward
    assert is_inference_mode(forward) and inference(forward) is forward


def test_the_example_of_the_docstring() -> None:
    results = doctest.testmod(_to_static)
    assert results.attempted > 3 and results.failed == 0
