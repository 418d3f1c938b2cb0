"""What code is told of the class of an object while it is traced is what it is told otherwise."""

from __future__ import annotations

import builtins
import dataclasses
import gc
import weakref
from typing import Any, ClassVar

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference


@dataclasses.dataclass
class Mode:
    kind: str = "a"


@dataclasses.dataclass(frozen=True)
class Config:
    size: int = 1


class State:
    def __init__(self, value: float = 2.0) -> None:
        self.value = value


class Other(State):
    pass


class ByHand:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.kind == other.kind  # type: ignore[attr-defined]


def equal(net: Any) -> float:
    return 2.0 if net.mode == Mode("b") else 3.0


def among(net: Any) -> float:
    return 2.0 if net.mode in [Mode("b"), Mode("c")] else 3.0


def looked_up(net: Any) -> float:
    return {Config(1): 2.0, Config(2): 5.0}.get(net.config, 7.0)


def by_hand(net: Any) -> float:
    return 2.0 if net.hand == ByHand("b") else 3.0


def by_type(net: Any) -> float:
    return net.state.value if type(net.state) is State else 3.0


def by_type_of_a_layer(net: Any) -> float:
    return net.mode.kind.count("b") + (2.0 if type(net.inner) is not type(net) else 3.0)


def by_table(net: Any) -> float:
    return {State: 2.0, Other: 5.0}[type(net.state)]


def by_class(net: Any) -> float:
    return net.state.value if net.state.__class__ is State else 3.0


class Table:
    kinds: ClassVar[dict[Any, Any]] = {}


def kind_of(value: Any) -> type:
    return type(value)


BY_LAYER: dict[str, Any] = {
    "a table": lambda inner: Table.kinds.get(type(inner), 100.0),
    "among": lambda inner: 10.0 if type(inner) in KINDS else 100.0,
    "an alias": lambda inner: 10.0 if type(inner) is ALIAS else 100.0,
    "a function": lambda inner: 10.0 if kind_of(inner) is ALIAS else 100.0,
    "builtins": lambda inner: 10.0 if builtins.type(inner) is ALIAS else 100.0,
    "type by another name": lambda inner: 10.0 if TYPE(inner) == ALIAS else 100.0,
    "an attribute": lambda inner: 10.0 if type(inner) is inner.own else 100.0,
}
TYPE = type
KINDS: tuple[type, ...] = ()
ALIAS: Any = None


@pytest.mark.parametrize("ask", BY_LAYER.values(), ids=BY_LAYER)
def test_classes_of_layers_are_compared(framework: Any, ask: Any) -> None:
    global KINDS, ALIAS

    class Inner(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.own = Inner

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        @inference()
        def forward(self, x: Any) -> Any:
            return framework.clip(x, max=ask(self.inner))

    Table.kinds, KINDS, ALIAS = {Inner: 10.0}, (int, Inner), Inner
    net, x = Net(), framework.ones([2, 3])
    with framework.no_grad():
        assert [float(net(each).max()) for each in (x, x, x * 50)] == [1, 1, 10]
    assert counts()["eager_calls"] == 0


ASKING = [equal, among, looked_up, by_hand, by_type, by_type_of_a_layer, by_table, by_class]


def _layer(framework: Any, ask: Any) -> Any:
    class Inner(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + 1

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.mode, self.config, self.state, self.hand = Inner(), Mode(), Config(), State(), ByHand("a")

        @inference()
        def forward(self, x: Any) -> Any:
            return self.inner(x) * ask(self)

    return Net()


def _change(net: Any) -> None:
    net.mode.kind, net.config, net.hand.kind, net.state.value = "b", Config(2), "b", 7.0


def _replace(net: Any) -> None:
    net.mode, net.config, net.hand, net.state = Mode("z"), Config(9), ByHand("z"), Other(8.0)


@pytest.mark.parametrize("ask", ASKING, ids=lambda ask: ask.__name__)
def test_an_answer_of_another_object_is_another_static_model(framework: Any, ask: Any) -> None:
    net, other = _layer(framework, ask), _layer(framework, ask)
    x = framework.ones([2, 3])
    with framework.no_grad():
        for change in (None, _change, _replace, None):
            for each in (net, other):
                if change is not None:
                    change(each)
                for _ in range(2):
                    np.testing.assert_allclose(np.asarray(each(x)), np.asarray((x + 1) * ask(each)), rtol=1e-6)
    assert counts()["eager_calls"] == 0


def test_counting_on_the_class_is_seen_as_a_change(framework: Any) -> None:
    class Net(layer_class(framework)):  # type: ignore[misc]
        calls = 0

        @inference()
        def forward(self, x: Any) -> Any:
            self.__class__.calls += 1
            return x + 1

    net = Net()
    with framework.no_grad():
        for _ in range(3):
            net(framework.ones([2]))
    assert Net.calls == 3
    assert counts()["eager_calls"] == 3


def test_classes_that_were_traced_are_let_go(framework: Any) -> None:
    class Net(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def forward(self, x: Any) -> Any:
            return x * self.held.factor

    def traced() -> weakref.ref[type]:
        net, kind = Net(), type("Held", (), {"factor": 2.0})
        net.held = kind()
        net(framework.ones([2]))
        return weakref.ref(kind)

    with framework.no_grad():
        held = traced()
    for _ in range(3):
        gc.collect()
    assert counts()["captures"] == 1
    assert held() is None
