"""Calls that take another side of a branch on values than a static model holds, when more than a run of it is due."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same

import hybrid_infer
from hybrid_infer import BackendError, _dispatch, _pauses, _serve, _sides, inference
from hybrid_infer._errors import CheckFailed, EngineError
from hybrid_infer.capture import _tracing

pytestmark = pytest.mark.torch

X = torch.arange(1.0, 9.0).reshape(2, 4)


def decorated(kind: Any, **options: Any) -> Any:
    """A layer of a class of its own, with the same weights each time."""
    torch.manual_seed(0)
    return type(kind.__name__, (kind,), {"forward": inference(kind.forward, **options)})().eval()


class Structured(Block):
    def forward(self, x: Any) -> Any:
        y = self.linear(x.abs())
        return y * 2 if x.sum() > 0 else (x, y)


class Viewing(Block):
    def forward(self, x: Any) -> Any:
        return self.linear(x) if x.sum() > 0 else x[0]


class Writing(Block):
    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        if x.sum() < 0:
            x.zero_()
        return y


@pytest.mark.parametrize("verify", ["first", "always", "build"])
@pytest.mark.parametrize("kind", [Structured, Viewing, Writing])
def test_a_side_of_another_kind_is_no_fault_of_the_static_model(kind: Any, verify: str) -> None:
    hot = type(kind.__name__, (kind,), {"forward": inference(kind.forward, verify=verify)})
    with torch.no_grad():
        for _ in range(3):
            layer = hot().eval()  # which finds the static model of the one before
            for given in (-X, X, X, -X, X, X) if counts()["captures"] else (X, X):
                same(layer(given.clone()), kind.forward(layer, given.clone()))
    found = counts()
    assert found["captures"] == 1 and found["hits"] >= 7, found
    assert all("went another way" in reason for reason in found["fallbacks"]), found


def divided(x: Any, d: Any) -> Any:
    return x // d if (d != 0).all() else x


def looked_up(x: Any, d: Any) -> Any:
    return x[:, d] * 2 if (d < 4).all() else x * 2


@pytest.mark.parametrize("verify", ["first", "build"])
@pytest.mark.parametrize("function", [divided, looked_up], ids=lambda each: each.__name__)
def test_what_an_engine_cannot_compute_of_the_other_side_is_no_error(function: Any, verify: str) -> None:
    whole, good, bad = torch.arange(8).reshape(2, 4), torch.tensor([1, 2, 3, 3]), torch.tensor([1, 0, 3, 9])
    for calls in ((good, good, bad, bad, good, bad), (bad, good, bad, good)):
        hot = inference(lambda x, d: function(x, d), fallback="error", verify=verify)
        with torch.no_grad():
            for given in calls:
                same(hot(whole, given), function(whole, given))
    found = counts(next(iter(hybrid_infer.stats())))
    assert found["hits"] and all("another way" in reason for reason in found["fallbacks"]), found


def test_an_engine_that_fails_on_the_side_it_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = decorated(Structured, fallback="error")
    with torch.no_grad():
        layer(X), layer(X)
        from hybrid_infer._route import Compiled

        def fails(*_: Any) -> Any:
            raise EngineError("onnxruntime", "out of order")

        monkeypatch.setattr(Compiled, "compute", fails)
        monkeypatch.setattr(Compiled, "run", fails)
        with pytest.raises(BackendError, match="out of order"):
            for _ in range(5):
                layer(X)
    assert counts()["captures"] == 1


class Picking(Block):
    """Of a NaN, ONNX Runtime refuses `argmax`; only eager code tells which number is the largest one."""

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return y * 2 if x.isinf().any() else y * y.argmax(-1, keepdim=True)


class Mending(Block):
    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return y.nan_to_num() if y.isnan().any() else y * y.argmax(-1, keepdim=True)


NAN = torch.full((2, 4), torch.nan)


def test_values_that_an_engine_refuses_are_no_other_side(captures: list[str]) -> None:
    layer = decorated(Picking)
    with torch.no_grad():
        for given in (X, X, *[NAN] * 6, *[X] * 6):
            same(layer(given), Picking.forward(layer, given))
    found = counts()
    assert found["hits"] == 7 and len(captures) == 1, found
    assert any("a NaN" in reason for reason in found["fallbacks"]), found


def test_a_nan_that_takes_another_side_is_of_that_side(captures: list[str]) -> None:
    layer = decorated(Mending)
    with torch.no_grad():
        for given in (X, X, *[NAN] * 12):
            same(layer(given), Mending.forward(layer, given))
    found = counts()
    assert found["captures"] == 2 and found["hits"] >= 7, found


class Slow:
    """A clock that goes on while methods are captured, for longer than a static model is left alone at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, capture = 100.0, _tracing.capture

        def slowly(*of: Any) -> Any:
            self.now += 5
            return capture(*of)

        monkeypatch.setattr(_tracing, "capture", slowly)
        monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.mark.parametrize("fault", [EngineError("onnxruntime", "out of order"), CheckFailed("onnxruntime", "so")])
def test_what_answers_for_now_ends_though_a_capture_takes_longer(
    fault: EngineError, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Slow(monkeypatch)
    _dispatch._STATES.clear()
    layer = decorated(Structured)
    with torch.no_grad():
        layer(X), layer(X)
        (state,) = [each for each in _dispatch._STATES if each.method.name == layer.forward.__hybrid_infer__.name]
        (route,) = state.routes.values()
        for _ in range(4):
            state.sides.another_way(route.held, fault, 1)
        _serve._drop(state, route)
        for _ in range(9):  # the first of which is captured again, which finds the same side
            same(layer(X), Structured.forward(layer, X))
    found = counts()
    assert found["captures"] == 1 and found["hits"] == 9 and clock.now == 110, found


class Flagged(Block):
    def __init__(self, on: bool = True) -> None:
        super().__init__()
        self.register_buffer("on", torch.tensor(on))

    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        if self.on:
            x = torch.relu(x)
        return x


class Stack(torch.nn.Module):
    def __init__(self, flags: str) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Flagged(flag == "T") for flag in flags)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x + 1


@pytest.mark.parametrize(("first", "then"), [("TFT", "TFF"), ("TTF", "FTF"), ("TTT", "TTF")])
def test_layers_that_share_their_code_take_a_side_each(first: str, then: str) -> None:
    hot = type("Stack", (Stack,), {"forward": inference(Stack.forward)})
    stacks = [hot(first).eval(), hot(then).eval()]
    with torch.no_grad():
        for stack in stacks:
            for _ in range(8):
                same(stack(X), Stack.forward(stack, X))
        found = counts()
        assert (found["captures"], found["eager_calls"]) == (2, 3), found
        (explained,) = hybrid_infer.explain(stacks[0]).to_dict()["methods"]
        assert all(len(version["branches"]) <= 2 for version in explained["versions"])


def test_a_call_of_the_side_that_is_held_tells_nothing_of_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another thread's call is the first one that finds a static model left alone."""
    clock = [100.0]
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    layer, state = decorated(Structured), None
    with torch.no_grad():
        layer(X), layer(X)
        (state,) = [each for each in _dispatch._STATES if each.method.name == layer.forward.__hybrid_infer__.name]
        (route,) = state.routes.values()
        for _ in range(4):
            state.sides.another_way(route.held, CheckFailed("onnxruntime", "a check failed"), 1)
        _serve._drop(state, route)
        same(layer(X), Structured.forward(layer, X))
        clock[0] += 10
        for _ in range(3):
            same(layer(X), Structured.forward(layer, X))
        for _ in range(8):
            same(layer(-X), Structured.forward(layer, -X))
    found = counts()
    assert found["captures"] == 2 and found["hits"] >= 6, found


@pytest.mark.parametrize(("share", "served"), [(0.05, 0.85), (0.1, 0.7), (0.3, 0.0)])
def test_calls_of_the_other_side_that_come_at_random(
    share: float, served: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, random, held, hits, strays = [100.0], Random(0), object(), 0, 0
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    sides, fault = _sides.Sides(), CheckFailed("onnxruntime", "a check failed")
    for _ in range(20000):
        clock[0] += 0.001
        if sides.rests(held):
            continue
        if random.random() < share:
            strays += 1
            sides.another_way(held, fault, 100)
        else:
            hits += 1
            sides.fitted(held)
    assert hits >= served * 20000, (hits, strays)
    assert served or strays < 400, (hits, strays)


@pytest.mark.parametrize("verify", ["build", "first", "always"])
def test_what_the_method_raises_comes_of_nothing_of_ours(verify: str) -> None:
    def positive(x: Any) -> Any:
        if (x <= 0).any():
            raise ValueError("not positive")
        return x * 2

    hot = inference(positive, verify=verify)
    with torch.no_grad():
        hot(X), hot(X)
        for _ in range(6):  # the last ones are looked up
            with pytest.raises(ValueError, match="not positive") as found:
                hot(-X)
            assert found.value.__context__ is None and found.value.__cause__ is None
