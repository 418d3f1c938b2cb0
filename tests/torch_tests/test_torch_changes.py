"""What a capture read through an object is seen to change, whichever kind of object it is and wherever it is held."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_support import same

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)
FLAGS: set[str] = set()


class Scale:
    def __init__(self) -> None:
        self.factor = 2.0

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Slotted:
    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 2.0


SCALE = Scale()
SPACE = SimpleNamespace(nested=SimpleNamespace(factor=2.0))


class Layer(torch.nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.held = held

    def calling(self, x: torch.Tensor) -> torch.Tensor:
        return self.held(self.linear(x))

    def reading(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.held.factor

    def choosing(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (2 if "wide" in self.held else 3)

    def of_a_global(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * SCALE.factor * SPACE.nested.factor * (2 if "wide" in FLAGS else 3)

    def of_a_default(self, x: torch.Tensor, scale: Scale = SCALE) -> torch.Tensor:
        return self.linear(x) * scale.factor


class Doubled(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


def closure() -> tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[float], None]]:
    factor = 2.0

    def apply(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    def change(value: float) -> None:
        nonlocal factor
        factor = value

    return apply, change


def of_a_helper(x: torch.Tensor) -> torch.Tensor:
    return x * SPACE.nested.factor


def case(name: str) -> tuple[Any, str, Callable[[], object]]:
    """An attribute, the method that uses it, and a change of what it holds."""
    if name == "a bound method's object":
        scale = Scale()
        return scale.apply, "calling", lambda: setattr(scale, "factor", 3.0)
    if name == "a variable of an attribute's closure":
        apply, change = closure()
        return apply, "calling", lambda: change(3.0)
    if name == "a global that a function in an attribute reads":
        return of_a_helper, "calling", lambda: setattr(SPACE.nested, "factor", 3.0)
    if name == "an object with slots":
        slotted = Slotted()
        return slotted, "reading", lambda: setattr(slotted, "factor", 3.0)
    if name == "a set":
        flags: set[str] = set()
        return flags, "choosing", lambda: flags.add("wide")
    if name == "a global object":
        return None, "of_a_global", lambda: setattr(SCALE, "factor", 3.0)
    if name == "an object in a global object":
        return None, "of_a_global", lambda: setattr(SPACE.nested, "factor", 3.0)
    if name == "a global set":
        return None, "of_a_global", lambda: FLAGS.add("wide")
    assert name == "a default"
    return None, "of_a_default", lambda: setattr(SCALE, "factor", 3.0)


@pytest.mark.parametrize(
    "name",
    [
        "a bound method's object", "a variable of an attribute's closure", "an object with slots", "a set",
        "a global that a function in an attribute reads", "a global object", "an object in a global object",
        "a global set", "a default",
    ],
)  # fmt: skip
def test_a_change_of_what_an_object_holds_is_seen_by_the_next_call(name: str) -> None:
    SCALE.factor, SPACE.nested.factor = 2.0, 2.0
    FLAGS.clear()
    held, method, change = case(name)
    layer = Layer(held).eval()
    hot, eager = inference(getattr(layer, method)), getattr(layer, method)
    with torch.no_grad():
        before = eager(X)
        for _ in range(2):
            same(hot(X), before)
        change()
        after = eager(X)
        assert not torch.allclose(before, after)
        for _ in range(2):
            same(hot(X), after)


def test_a_sublayer_that_is_given_another_class() -> None:
    layer = Layer(None).eval()
    layer.held = torch.nn.Identity()
    hot = inference(layer.calling)
    with torch.no_grad():
        for _ in range(2):
            same(hot(X), layer.calling(X))
        layer.linear.__class__ = Doubled
        for _ in range(2):
            same(hot(X), layer.calling(X))
