"""A capture that failed says nothing of calls for which the layer or the environment holds something else."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference

NAME = "SOME_SWITCH"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "0")
    monkeypatch.delenv(NAME)


def _by_branch(x: Any) -> int:
    n = 0
    while x.sum() > n:
        n += 1
    return n


def _by_list(x: Any) -> float:
    return sum(x.tolist())


def _layer(framework: Any) -> Any:
    total = _by_branch if framework.__name__ == "torch" else _by_list  # which its tracer cannot follow

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.listed, self.step, self.calls = True, 0, 0

        @inference()
        def forward(self, x: Any) -> Any:
            return x * total(x) if self.listed or os.environ.get(NAME) else x + 1

        @inference()
        def stepping(self, x: Any) -> Any:
            return x * (total(x) + self.step)

        @inference()
        def counting(self, x: Any) -> Any:
            self.calls += 1
            return x * (total(x) + self.calls)

    return Net()


def _value(framework: Any, method: Any, n: int = 2) -> float:
    with framework.no_grad():
        return float(np.asarray(method(framework.ones([n])))[0])


def test_another_way_through_the_method_is_captured(framework: Any) -> None:
    layer = _layer(framework)
    assert [_value(framework, layer) for _ in range(3)] == [2, 2, 2]
    assert counts()["hits"] == 0
    layer.listed = False
    assert [_value(framework, layer) for _ in range(3)] == [2, 2, 2]
    assert counts()["captures"] == 1 and counts()["hits"] == 2
    os.environ[NAME] = "1"
    assert [_value(framework, layer, 3) for _ in range(3)] == [3, 3, 3]
    del os.environ[NAME]
    assert [_value(framework, layer, 3) for _ in range(3)] == [2, 2, 2]
    assert counts()["hits"] >= 4


def test_another_instance_with_the_same_values_does_not_try_again(framework: Any, captures: list[str]) -> None:
    layers = [_layer(framework) for _ in range(3)]  # what was found goes with the last one of them
    assert [_value(framework, layer) for layer in layers] == [2, 2, 2]
    assert len(captures) == 1


@pytest.mark.parametrize("name", ["stepping", "counting"])
def test_values_that_differ_at_each_call_are_not_traced_at_each(
    framework: Any, captures: list[str], name: str
) -> None:
    layer = _layer(framework)
    for n in range(12):
        layer.step = n
        assert _value(framework, getattr(layer, name)) == 2 + (n if name == "stepping" else n + 1)
    assert len(captures) <= 3 and counts()["hits"] == 0
