"""What bounds the number of versions, and when that is looked at again; methods that call themselves."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served, twice

from hybrid_infer import CaptureError, inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Scaled(Block):
    scale = 1.0

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


def scaled(**options: Any) -> Scaled:
    class Hot(Scaled):
        forward = inference(**options)(Scaled.compute)

    return Hot()


def test_a_size_that_varies_is_no_version_more_than_the_limit() -> None:
    layer = inference(Block(), fallback="error", max_versions=1)
    for rows in (5, 7, 9, 5):
        twice(layer, Block.forward.__get__(layer), torch.randn(rows, 4))
    served(captures=2)


def test_a_size_that_cannot_vary_is_tried_once() -> None:
    def listed(x: torch.Tensor) -> torch.Tensor:
        return x * len(x.unbind(0))

    hot = inference(max_versions=1)(listed)
    twice(hot, listed, torch.randn(2, 2))
    for rows in (3, 4, 5):
        twice(hot, listed, torch.randn(rows, 2))
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 6
    assert all("max_versions=1" in reason for reason in counts()["fallbacks"])


def test_another_flag_is_one_version_too_many() -> None:
    hot = inference(max_versions=1, fallback="error")(lambda x, flag: x * 2 if flag else x * 3)
    twice(hot, lambda x, flag: x * 2, X, True)
    with pytest.raises(CaptureError, match="max_versions=1"):
        hot(X, False)


def test_a_call_past_the_limit_is_served_once_a_wider_version_is_there() -> None:
    def method(x: torch.Tensor, flag: bool) -> torch.Tensor:
        return x * 2 if flag else x * 3

    hot = inference(max_versions=2)(method)
    narrow, wide = torch.randn(3, 4), torch.randn(5, 4)
    twice(hot, method, narrow, True)
    twice(hot, method, narrow, False)
    text: Callable[..., Any] = method
    twice(hot, text, narrow, "yes")  # a third one
    assert counts()["eager_calls"] == 2
    twice(hot, method, wide, True)
    twice(hot, method, torch.randn(6, 4), True)
    assert counts()["captures"] == 3 and counts()["eager_calls"] == 2


def test_past_the_bound_calls_of_the_same_structure_tell_what_varies() -> None:
    def turned(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        y = torch.zeros_like(x[:, 0])
        for i in range(x.shape[1]):
            y = torch.tanh(y + x[:, i])
        return y if mask is None else y * mask[0]

    hot = inference(max_versions=4)(turned)
    for n in (3, 4, 5):
        same(hot(torch.ones(2, n), None), turned(torch.ones(2, n), None))
    for n in (3, 4):
        same(hot(torch.ones(2, n), torch.ones(n)), turned(torch.ones(2, n), torch.ones(n)))
    (reason,) = counts()["fallbacks"]
    assert "the shape of argument `x` varies" in reason


def test_past_the_bound_a_constant_is_not_mistaken_for_the_structure() -> None:
    def scaled(x: torch.Tensor, mask: torch.Tensor | None = None, by: float = 1.0) -> torch.Tensor:
        return x * by if mask is None else x * by * mask

    hot, x = inference(max_versions=3)(scaled), torch.ones(2, 3)
    for given in ((x,), (x, x), (x, x, 2.0), (x, None, 3.0)):
        same(hot(*given), scaled(*given))
    (reason,) = counts()["fallbacks"]
    assert "argument `by` takes many values" in reason


def test_a_value_that_comes_back_is_served_past_the_limit() -> None:
    layer = scaled(max_versions=2)
    for scale in (1.0, 2.0, 3.0, 1.0):
        layer.scale = scale
        twice(layer, layer.compute, X)
    assert counts()["captures"] == 2 and counts()["eager_calls"] == 2


def test_released_versions_make_room() -> None:
    import hybrid_infer

    layer = scaled(max_versions=1)
    twice(layer, layer.compute, X)
    layer.scale = 2.0
    twice(layer, layer.compute, X)
    assert counts()["eager_calls"] == 2
    hybrid_infer.release(layer)
    twice(layer, layer.compute, X)
    assert counts()["eager_calls"] == 2 and counts()["captures"] == 2


WEIGHT = torch.full((4,), 2.0)


def plain(self: Any, x: torch.Tensor, scale: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
    return self.linear(x) * scale + shift


def listed(self: Any, x: torch.Tensor, scale: Any = (2.0,), *, shift: Any = {"a": 1.0}) -> torch.Tensor:  # noqa: B006
    return self.linear(x) * scale[0] + shift["a"]


def tensors(self: Any, x: torch.Tensor, scale: Any = WEIGHT, *, shift: Any = WEIGHT) -> torch.Tensor:
    return self.linear(x) * scale + shift


def of_a_helper(self: Any, x: torch.Tensor) -> torch.Tensor:
    return helper(self.linear(x))


def helper(x: torch.Tensor, scale: float = 2.0, *, shift: float = 1.0) -> torch.Tensor:
    return x * scale + shift


REPLACED = {
    "plain": (plain, (5.0,), {"shift": 7.0}),
    "listed": (listed, ((5.0,),), {"shift": {"a": 7.0}}),
    "tensors": (tensors, (WEIGHT * 3,), {"shift": WEIGHT * 4}),
    "of_a_helper": (of_a_helper, (5.0,), {"shift": 7.0}),
}


@pytest.mark.parametrize("name", REPLACED)
def test_defaults_that_are_replaced_count_from_the_next_call(name: str) -> None:
    function, positional, keywords = REPLACED[name]
    mine = types.FunctionType(helper.__code__, globals(), "helper", helper.__defaults__)
    mine.__kwdefaults__ = dict(helper.__kwdefaults__ or {})
    copy = types.FunctionType(function.__code__, {**globals(), "helper": mine}, "forward", function.__defaults__)
    copy.__qualname__ = "Hot.forward"
    copy.__kwdefaults__ = function.__kwdefaults__ and dict(function.__kwdefaults__)

    class Hot(Block):
        forward = inference(fallback="error")(copy)

    layer, changed = Hot(), mine if name == "of_a_helper" else copy
    eager = copy.__get__(layer)
    twice(layer, eager, X)
    before = eager(X)
    changed.__defaults__ = positional
    assert not torch.allclose(before, eager(X))
    twice(layer, eager, X)
    before = eager(X)
    changed.__kwdefaults__ = keywords
    assert not torch.allclose(before, eager(X))
    twice(layer, eager, X)
    changed.__kwdefaults__["shift"] = 9.0 if name != "listed" else {"a": 9.0}
    twice(layer, eager, X)
    assert counts()["eager_calls"] == 0


class Recursive(Block):
    def compute(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        x = torch.relu(self.linear(x))
        return self(x, depth - 1) if depth else x


class Chained(Block):
    following: Any = None

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.linear(x))
        return x if self.following is None else self.following(x)


@pytest.mark.parametrize("random", [False, True], ids=["captured", "not captured"])
def test_a_method_that_calls_itself_waits_for_no_lock(monkeypatch: pytest.MonkeyPatch, random: bool) -> None:
    """With a wait that would outlast the test's own time limit."""
    from hybrid_infer import _resolve

    monkeypatch.setattr(_resolve, "_WAIT", 600.0)

    class Hot(Recursive):
        def compute(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
            y = super().compute(x, depth)
            return y * torch.bernoulli(torch.ones(())) if random else y

        forward = inference(compute)

    class Link(Chained):
        forward = inference(Chained.compute)

    layer = Hot()
    with torch.no_grad():
        for _ in range(3):
            same(layer(X), layer.compute(X))
    first, second = Link(), Link()
    first.following = second
    with torch.no_grad():
        for _ in range(3):
            same(first(X), first.compute(X))
            same(second(X), second.compute(X))
    assert counts("Link")["eager_calls"] == 0
    if not random:
        assert counts("Hot")["eager_calls"] == 0
