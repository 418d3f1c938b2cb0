"""Attributes that a class leaves out of its copies, as Lightning's modules do with their trainer."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support import counts, eagerly, layer_class, served

from hybrid_infer import inference


class Trainer:
    """Holds the layer, data and what refuses to be copied, as a trainer does."""

    def __init__(self, layer: Any, data: Any) -> None:
        self.layer, self.part, self.data, self.scale, self.lock = layer, layer.linear, data, 3.0, threading.Lock()


def computes(layer: Any, x: Any) -> Any:
    return layer.linear(x)


def asks(layer: Any, x: Any) -> Any:
    return layer.linear(x) * (1.0 if layer._trainer is None else layer._trainer.scale)


def asks_for_its_name(layer: Any, x: Any) -> Any:
    return layer.linear(x) * (3.0 if getattr(layer, "_trainer", None) else 1.0)


def looks_at_all(layer: Any, x: Any) -> Any:
    return layer.linear(x) * (3.0 if vars(layer)["_trainer"] else 1.0)


def assigns(layer: Any, x: Any) -> Any:
    layer._trainer = None
    return layer.linear(x)


def make(framework: Any, does: Callable[..., Any]) -> Any:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)
            self._trainer: Any = None

        def __getstate__(self) -> Any:
            return dict(vars(self), _trainer=None)

        @inference()
        def forward(self, x: Any) -> Any:
            return does(self, x)

    layer = Net()
    layer.eval()
    return layer


def ask(framework: Any, layer: Any, does: Callable[..., Any], times: int = 3) -> None:
    for n in range(times):
        x = framework.ones([2, 4]) * n
        with framework.no_grad():
            trainer, found = layer._trainer, layer(x)
            after, layer._trainer = layer._trainer, trainer
            expected = does(layer, x)
            assert layer._trainer is after
            layer._trainer = trainer
        assert bool(framework.allclose(found, expected, atol=1e-6))


def test_what_stands_behind_one_is_no_part_of_the_method(framework: Any) -> None:
    layer = make(framework, computes)
    layer._trainer = Trainer(layer, framework.ones([7, 3]))
    ask(framework, layer, computes)
    served(captures=1)
    layer._trainer = Trainer(layer, framework.ones([2, 9, 3]))
    ask(framework, layer, computes)
    layer._trainer = None
    ask(framework, layer, computes)
    served(captures=1)
    assert counts()["hits"] == 8


@pytest.mark.parametrize("does", [asks, asks_for_its_name, looks_at_all])
def test_a_method_that_looks_at_one_runs_eagerly(framework: Any, does: Callable[..., Any]) -> None:
    layer = make(framework, does)
    layer._trainer = Trainer(layer, framework.ones([7, 3]))
    ask(framework, layer, does)
    eagerly("it reads self._trainer", "__getstate__")


@pytest.mark.parametrize("does", [asks, asks_for_its_name])
def test_where_nothing_is_left_out_it_is_served(framework: Any, does: Callable[..., Any]) -> None:
    layer = make(framework, does)
    ask(framework, layer, does)
    served(captures=1)
    layer._trainer = Trainer(layer, [])
    hits = counts()["hits"]
    ask(framework, layer, does)
    assert counts()["hits"] == hits
    layer._trainer = None
    ask(framework, layer, does)
    assert counts()["hits"] > hits


def test_one_that_is_assigned(framework: Any) -> None:
    layer = make(framework, assigns)
    layer._trainer = Trainer(layer, [])
    ask(framework, layer, assigns)


def test_a_copy_of_another_structure_is_told_by_the_place(framework: Any) -> None:
    class Part(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = framework.nn.Linear(4, 4), framework.nn.Linear(4, 4)

        def __deepcopy__(self, memo: Any) -> Any:
            made = type(self)()
            made.first = copy.deepcopy(self.first, memo)
            del made.second
            return made

        def forward(self, x: Any) -> Any:
            return self.first(x)

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.part = Part()

        @inference()
        def forward(self, x: Any) -> Any:
            return self.part(x)

    layer = Net()
    layer.eval()
    with framework.no_grad():
        layer(framework.ones([2, 4]))
    eagerly("does not have the layer's structure, from self.part.second.weight on")


class Index:
    """Its state may be long in the making; `open` is left out of it, and `table` only while it is `full`."""

    asked = 0

    def __init__(self, table: Any = None) -> None:
        self.open, self.table, self.full, self.size = threading.Lock(), table, False, 2.0

    def __getstate__(self) -> Any:
        type(self).asked += 1
        return dict(vars(self), open=None, **({"table": None} if self.full else {}))


def indexed(framework: Any, index: Index, does: Callable[..., Any]) -> Any:
    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.index = framework.nn.Linear(4, 4), index

        @inference(backend="onnxruntime")
        def forward(self, x: Any) -> Any:
            return does(self, x)

    layer = Net()
    layer.eval()
    return layer


def test_it_is_asked_at_captures_alone(framework: Any) -> None:
    def sized(layer: Any, x: Any) -> Any:
        return layer.linear(x) * layer.index.size

    layer, x = indexed(framework, Index(), sized), framework.ones([2, 4])
    others = [copy.deepcopy(layer) for _ in range(3)]
    with framework.no_grad():
        layer(x)
        before = Index.asked
        for each in (layer, *others, layer):
            each.linear.weight.multiply_(framework.full([1], 2.0))
            assert bool(framework.allclose(each(x), sized(each, x), atol=1e-5))
    served(captures=1)
    assert Index.asked == before


@pytest.mark.parametrize("table", ["number", "tensor"])
def test_what_is_left_out_at_some_times_only(framework: Any, table: str) -> None:
    def tabled(layer: Any, x: Any) -> Any:
        if x.shape[0] > 2:
            return layer.linear(x) * (1.0 if layer.index.table is None else layer.index.table)
        return layer.linear(x)

    index = Index(2.0 if table == "number" else framework.ones([4]) * 2)
    layer = indexed(framework, index, tabled)
    with framework.no_grad():
        for full, rows in [(False, 2), (True, 3), (False, 3), (True, 4), (False, 4), (True, 3)]:
            index.full, x = full, framework.ones([rows, 4])
            assert bool(framework.allclose(layer(x), tabled(layer, x), atol=1e-5))
    assert len(counts()["fallbacks"]) == 1 and "from self.index.table on" in next(iter(counts()["fallbacks"]))
