"""A context variable that a method sets for itself is its own; one that others set decides no static model."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference

SCALE: contextvars.ContextVar[float] = contextvars.ContextVar("SCALE", default=1.0)
BARE: contextvars.ContextVar[Any] = contextvars.ContextVar("BARE")


class Holder:
    """As libraries wrap them, for compilers that cannot follow them."""

    def __init__(self) -> None:
        self.variable: contextvars.ContextVar[Any] = contextvars.ContextVar("held", default=1.0)

    def get(self) -> Any:
        return self.variable.get()

    def set(self, value: Any) -> Any:
        return self.variable.set(value)

    def reset(self, token: Any) -> None:
        self.variable.reset(token)


HOLDER = Holder()


def _scaled(x: Any) -> Any:
    return x * SCALE.get()


def for_itself(x: Any) -> Any:
    token = SCALE.set(3.0)
    try:
        return _scaled(x)
    finally:
        SCALE.reset(token)


def twice(x: Any) -> Any:
    outer = SCALE.set(2.0)
    inner = SCALE.set(5.0)
    x = _scaled(x)
    SCALE.reset(inner)
    x = _scaled(x)
    SCALE.reset(outer)
    return x


def by_an_object(x: Any) -> Any:
    token = HOLDER.set({"by": 4.0})
    x = x * HOLDER.get()["by"]
    HOLDER.reset(token)
    return x


def only_set(x: Any) -> Any:
    BARE.reset(BARE.set([x]))
    return x + 1


def looked_at_first(x: Any) -> Any:
    before = SCALE.get()
    token = SCALE.set(before + 1)
    x = _scaled(x)
    SCALE.reset(token)
    return x


def looked_at_after(x: Any) -> Any:
    SCALE.reset(SCALE.set(7.0))
    return _scaled(x)


def by_the_token(x: Any) -> Any:
    token = SCALE.set(3.0)
    before = token.old_value
    SCALE.reset(token)
    return x * (1.0 if before is contextvars.Token.MISSING else before)


def _push(value: float) -> Any:
    return SCALE.set(value)


def _before(token: Any) -> Any:
    return 1.0 if token.old_value is contextvars.Token.MISSING else token.old_value


def by_a_token_of_another(x: Any) -> Any:
    token = _push(3.0)
    before = _before(token)
    SCALE.reset(token)
    return x * before


def by_another_context(x: Any) -> Any:
    contextvars.copy_context().run(_push, 8.0)
    return x * SCALE.get()


def by_a_context_as_a_whole(x: Any) -> Any:
    return x * contextvars.copy_context()[SCALE]


def out_of_order(x: Any) -> Any:
    outer = SCALE.set(8.0)
    SCALE.set(9.0)
    SCALE.reset(outer)
    return x * SCALE.get()


def left(x: Any) -> Any:
    SCALE.set(2.0)
    return x + 1


def read_from_an_object(x: Any) -> Any:
    return x * HOLDER.get()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    tokens = [(each, each.set(1.0)) for each in (SCALE, HOLDER)]
    yield
    for each, token in tokens:
        each.reset(token)


def _layer(framework: Any, function: Callable[[Any], Any]) -> Any:
    class Method(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return function(x)

    layer = Method()
    layer.eval()
    return inference(layer)


def _x(framework: Any) -> Any:
    values = np.arange(4, dtype="float32")
    return framework.to_tensor(values) if framework.__name__ == "paddle" else framework.from_numpy(values)


def test_one_that_the_layer_holds_is_never_a_constant(framework: Any) -> None:
    class Holding(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = {"scale": SCALE}

        def forward(self, x: Any) -> Any:
            return x * self.held["scale"].get()

    layer, x = Holding(), _x(framework)
    layer.eval()
    hot = inference(layer)
    with framework.no_grad():
        for outside in (1.0, 8.0, 2.0):
            SCALE.set(outside)
            np.testing.assert_allclose(np.asarray(hot(x)), np.arange(4) * outside)
    assert counts()["hits"] == 0


@pytest.mark.parametrize("function", [for_itself, twice, by_an_object, only_set], ids=lambda each: each.__name__)
def test_one_that_the_method_sets_and_resets_is_its_own(framework: Any, function: Callable[[Any], Any]) -> None:
    layer, x = _layer(framework, function), _x(framework)
    with framework.no_grad():
        for outside in (1.0, 8.0):
            SCALE.set(outside)
            HOLDER.set(outside)
            for _ in range(2):
                np.testing.assert_allclose(np.asarray(layer(x)), np.asarray(function(x)), rtol=1e-6)
            assert SCALE.get() == HOLDER.get() == outside
    assert counts()["captures"] == 1 and counts()["hits"] >= 3 and not counts()["fallbacks"], counts()


@pytest.mark.parametrize(
    "function",
    [
        looked_at_first, looked_at_after, by_the_token, read_from_an_object, by_a_token_of_another, by_another_context,
        by_a_context_as_a_whole, out_of_order,
    ],
    ids=lambda each: each.__name__,
)  # fmt: skip
def test_what_one_held_before_is_never_a_constant(framework: Any, function: Callable[[Any], Any]) -> None:
    layer, x = _layer(framework, function), _x(framework)
    with framework.no_grad():
        for outside in (1.0, 8.0, 2.0):
            SCALE.set(outside)
            HOLDER.set(outside)
            np.testing.assert_allclose(np.asarray(layer(x)), np.asarray(function(x)), rtol=1e-6)
    assert counts()["hits"] == 0 and any("the context variable" in why for why in counts()["fallbacks"]), counts()


def test_one_that_is_left_set_is_set_at_each_call(framework: Any) -> None:
    layer, x = _layer(framework, left), _x(framework)
    with framework.no_grad():
        for before in (2.0, 1.0, 1.0):  # the first holds what is set
            SCALE.set(before)
            np.testing.assert_allclose(np.asarray(layer(x)), np.arange(4) + 1)
            assert SCALE.get() == 2.0
    assert counts()["hits"] == 0
    assert any("it sets the context variable SCALE, which outlasts the call" in why for why in counts()["fallbacks"])
