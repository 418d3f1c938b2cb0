"""Functions that objects keep as attributes: what they name of classes counts together with what the method names."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference


class Config:
    slope = 2.0

    def factor(self) -> float:
        return self.slope + 1


CONFIG = Config()


@pytest.fixture(autouse=True)
def first_value() -> Iterator[None]:
    yield
    Config.slope = 2.0


def act(y: Any, config: Any) -> Any:
    return y * config.slope


def act_by_method(y: Any, config: Any) -> Any:
    return y * config.factor()


def shifted(by: float, y: Any, config: Any) -> Any:
    return act(y, config) + by


class Helper:
    def act(self, y: Any, config: Any) -> Any:
        return y * config.slope


HOLD: dict[str, Callable[[], Any]] = {
    "function": lambda: act,
    "method of the class": lambda: act_by_method,
    "partial": lambda: functools.partial(shifted, 1.0),
    "bound method": lambda: Helper().act,
    "lambda": lambda: lambda y, config: y / config.slope,
    "static method": lambda: staticmethod(act),
}


def _net(framework: Any, held: Any, how: str) -> Any:
    class Act(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.function = held

        def forward(self, x: Any) -> Any:
            return self.function(x, CONFIG)

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held, self.table, self.inner = held, {"a": [held]}, Act()

        def eager(self, x: Any) -> Any:
            if how == "itself":
                return self.held(x, CONFIG)
            return self.table["a"][0](x, Config()) if how == "in a table" else self.inner(x)

        forward = inference(eager)

    return Net()


@pytest.mark.parametrize("kind", list(HOLD))
@pytest.mark.parametrize("how", ["itself", "in a table", "of a sublayer"])
def test_what_it_reads_of_a_class_is_seen_to_change(framework: Any, kind: str, how: str) -> None:
    net, x = _net(framework, HOLD[kind](), how), framework.ones([2, 3])
    with framework.no_grad():
        for slope in (2.0, 5.0, 2.0):
            Config.slope = slope
            for _ in range(2):
                np.testing.assert_allclose(np.asarray(net(x)), np.asarray(net.eager(x)), rtol=1e-6)
    assert (counts()["captures"], counts()["eager_calls"]) == (2, 0)


def clock(y: Any, config: Any) -> Any:
    return y * (time.perf_counter() + 1)


def lists(y: Any, config: Any) -> Any:
    return y * len(os.listdir(os.path.dirname(__file__)))


@pytest.mark.parametrize(("held", "reason"), [(clock, "it reads the clock"), (lists, "it reads the file system")])
def test_what_it_asks_from_outside_is_asked_at_each_call(framework: Any, held: Any, reason: str) -> None:
    net = _net(framework, held, "itself")
    with framework.no_grad():
        for _ in range(3):
            net(framework.ones([2, 3]))
    assert counts()["eager_calls"] == 3 and next(iter(counts()["fallbacks"])).startswith(reason)


def by_class(y: Any, config: Any) -> Any:
    return y.clip(max=10.0) if type(config) is Config else y + 0.0


WIDTH: Any = None


def wide(y: Any, config: Any) -> Any:
    return y * WIDTH


def holding(framework: Any, function: Any) -> Any:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.function, self.config = function, Config()

        @inference()
        def forward(self, x: Any) -> Any:
            return self.function(x, self.config)

    return Net()


def test_a_class_that_it_compares_is_the_objects_own(framework: Any) -> None:
    net, x = holding(framework, by_class), framework.ones([2, 3])
    with framework.no_grad():
        assert [float(net(each).max()) for each in (x, x, x * 100)] == [1, 1, 10]
    assert counts()["eager_calls"] == 0


def test_a_global_tensor_that_it_uses(framework: Any) -> None:
    global WIDTH
    net, x = holding(framework, wide), framework.ones([2, 3])
    with framework.no_grad():
        for width in (2.0, 5.0):
            WIDTH = framework.ones([3]) * width
            assert [float(net(x).max()) for _ in range(2)] == [width, width]
        WIDTH[:] = 3.0
        assert float(net(x).max()) == 3
    assert counts()["eager_calls"] == 0


def test_a_function_of_the_framework_that_it_names(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    functional = framework.nn.functional
    net, x = holding(framework, lambda y, config: functional.relu(y - 0.5)), framework.ones([2, 3])
    with framework.no_grad():
        assert [float(net(x).max()) for _ in range(2)] == [0.5, 0.5]
        monkeypatch.setattr(functional, "relu", lambda y: y * 8)
        assert [float(net(x).max()) for _ in range(2)] == [4, 4]


def test_one_that_no_code_calls_counts_for_nothing(framework: Any) -> None:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.callback = act

        @inference()
        def forward(self, x: Any) -> Any:
            return x + 1

    net, x = Net(), framework.ones([2, 3])
    with framework.no_grad():
        net(x)
        net.callback = act_by_method
        Config.slope = 7.0
        net(x)
    assert counts()["captures"] == 1


@pytest.mark.parametrize("around", [lambda layer: layer, lambda layer: lambda y: layer(y)], ids=["itself", "lambda"])
def test_a_static_method_that_leads_to_a_layer(framework: Any, around: Callable[[Any], Any]) -> None:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)
            self.kept = staticmethod(around(self.linear))

        def eager(self, x: Any) -> Any:
            return self.kept(x) * 2

        forward = inference(eager)

    net, x = Net(), framework.ones([2, 4])
    with framework.no_grad():
        for n in range(3):
            net.linear.weight.fill_(n)
            np.testing.assert_allclose(np.asarray(net(x)), np.asarray(net.eager(x)), rtol=1e-6)
    assert counts()["hits"] == 0 and counts()["eager_calls"] == 3
