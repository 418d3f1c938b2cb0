"""What a method writes beside its layer happens as often as the program calls it: the trace leaves nothing behind."""

from __future__ import annotations

import collections
import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_support import counts, eagerly, same, served

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Held:
    def __init__(self) -> None:
        self.n, self.items, self.table = 0, [0], torch.zeros(4)


class Slotted:
    __slots__ = ("items", "n")

    def __init__(self) -> None:
        self.n, self.items = 0, [0]


HELD, SLOTTED, NAMESPACE = Held(), Slotted(), types.SimpleNamespace(n=0, table={"n": 0})
ARRAY = np.zeros(3)
LARGE = [0] * 5000
RECENT: collections.deque[int] = collections.deque(maxlen=8)
MODULE: Any = types.ModuleType("a_module_of_the_program")
BOUND = Held()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    fresh()


def fresh() -> None:
    HELD.__init__()  # type: ignore[misc]
    SLOTTED.__init__()  # type: ignore[misc]
    NAMESPACE.__init__(n=0, table={"n": 0})
    BOUND.__init__()  # type: ignore[misc]
    ARRAY.fill(0)
    LARGE[:] = [0] * 5000
    RECENT.clear()
    vars(MODULE).pop("n", None)
    Layer.calls = 0


def slot(x: torch.Tensor) -> torch.Tensor:
    SLOTTED.n += 1
    return x + SLOTTED.n


def namespace(x: torch.Tensor) -> torch.Tensor:
    NAMESPACE.table["n"] += 1
    return x + NAMESPACE.table["n"]


def array(x: torch.Tensor) -> torch.Tensor:
    ARRAY[1] += 1
    return x + float(ARRAY[1])


def large(x: torch.Tensor) -> torch.Tensor:
    LARGE[4000] += 1
    return x + LARGE[4000]


def recent(x: torch.Tensor) -> torch.Tensor:
    RECENT.append(1)
    return x + len(RECENT)


def module(x: torch.Tensor) -> torch.Tensor:
    MODULE.n = getattr(MODULE, "n", 0) + 1
    return x + MODULE.n


def tensor(x: torch.Tensor) -> torch.Tensor:
    HELD.table.add_(1)
    return x + HELD.table


def kept(x: torch.Tensor) -> torch.Tensor:
    HELD.table = HELD.table + x.mean()
    return x + HELD.table


def bound(x: torch.Tensor) -> torch.Tensor:
    helper(x)
    return x + BOUND.n


helper = functools.partial(lambda held, x: setattr(held, "n", held.n + 1), BOUND)


def defaulting(x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006  # kept from call to call by intent
    seen.append(1)
    return x + len(seen)


def closing() -> Callable[[torch.Tensor], torch.Tensor]:
    n, held = 0, Held()

    def compute(x: torch.Tensor) -> torch.Tensor:
        nonlocal n
        n += 1
        held.items.append(n)
        return x + n + len(held.items)

    return compute


CASES: dict[str, tuple[Callable[[], Callable[..., Any]], str]] = {
    "slot": (lambda: slot, "SLOTTED.n"),
    "namespace": (lambda: namespace, "NAMESPACE.table"),
    "array": (lambda: array, "ARRAY"),
    "large": (lambda: large, "LARGE"),
    "recent": (lambda: recent, "RECENT"),
    "module": (lambda: module, "a_module_of_the_program.n"),
    "tensor": (lambda: tensor, "the tensor"),
    "kept": (lambda: kept, "HELD.table"),
    "bound": (lambda: bound, "BOUND.n"),
    "closing": (closing, "enclosing function"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_call_has_its_effect_once(name: str) -> None:
    make, word = CASES[name]
    outcomes = []
    for decorate in (lambda function: function, inference()):
        fresh()
        method = decorate(make())
        with torch.no_grad():
            outcomes.append([method(X.clone()) for _ in range(3)])
        state = [HELD.table, SLOTTED.n, NAMESPACE.table["n"], ARRAY.tolist(), sum(LARGE), list(RECENT), BOUND.n]
        outcomes.append([torch.Tensor.tolist(v) if isinstance(v, torch.Tensor) else v for v in state])
    same(outcomes[2], outcomes[0])
    assert outcomes[3] == outcomes[1]
    eagerly("it changes", word)


class Layer(torch.nn.Module):
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @inference()
    def counting(self, x: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        return self.linear(x) * type(self).calls


def test_a_class_counts_its_calls_through_the_instance() -> None:
    layer = Layer()
    with torch.no_grad():
        found = [layer.counting(X) for _ in range(3)]
        for n, each in enumerate(found):
            same(each, layer.linear(X) * (n + 1))
    assert Layer.calls == 3
    eagerly("Layer.calls")


class Current:
    layer: Any = None


def test_the_layer_itself_by_another_way() -> None:
    class Hot(Layer):
        @inference()
        def roundabout(self, x: torch.Tensor) -> torch.Tensor:
            Current.layer.n += 1
            return self.linear(x)

    Current.layer = layer = Hot()
    layer.n = 0
    with torch.no_grad():
        for _ in range(3):
            layer.roundabout(X)
    assert layer.n == 3
    eagerly("Current.layer.n")


def test_containers_among_the_arguments_are_the_callers_own() -> None:
    @inference()
    def collecting(x: torch.Tensor, found: list[torch.Tensor], named: dict[str, Any]) -> torch.Tensor:
        found.append(x * 2)
        named["n"] = 1
        return x + 1

    for _ in range(3):
        found: list[torch.Tensor] = []
        named: dict[str, Any] = {}
        with torch.no_grad():
            collecting(X, found, named)
        same(found, [X * 2])
        assert named == {"n": 1}
    served(captures=1)


def test_a_default_that_grows() -> None:
    with torch.no_grad():
        method = inference()(defaulting)
        for n in range(3):
            same(method(X), X + n + 1)
    assert counts()["captures"] == 0


NUMBERS = itertools.count()


def test_an_iterator_is_not_advanced_by_a_trace() -> None:
    @inference()
    def numbered(x: torch.Tensor) -> torch.Tensor:
        return x + next(NUMBERS)

    with torch.no_grad():
        for n in range(3):
            same(numbered(X), X + n)
    eagerly("iterator", "NUMBERS")


@functools.lru_cache
def table(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32)


def test_a_cache_of_results_keeps_nothing_of_the_trace() -> None:
    @inference()
    def tabled(x: torch.Tensor) -> torch.Tensor:
        return x + table(4)

    table.cache_clear()
    with torch.no_grad():
        for _ in range(2):
            same(tabled(X), X + torch.arange(4.0))
    assert type(table(4)) is torch.Tensor
    same(table(4), torch.arange(4.0))
    served(1)
