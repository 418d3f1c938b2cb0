"""State that a layer holds out of plain sight: in tuples, slots, functions, weak references, the order of a dict."""

from __future__ import annotations

import importlib
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest

from hybrid_infer import inference, stats


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "paddle")])
def framework(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


class Slots:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 1


class More(Slots):
    """Has a dict of attributes too."""


class Held:
    def __init__(self) -> None:
        self.count = 1


class Row(tuple[Any, ...]):
    """Has attributes."""


class Number(float):
    """Has attributes."""


def counting(held: Any) -> int:
    held.count += 1
    return int(held.count)


def marking(held: Any) -> int:
    """The same at each call, and undone by the program in between."""
    before, held.count = held.count, 7
    return int(before)


def first_to_end(held: Any) -> int:
    name = next(iter(held))
    held[name] = held.pop(name)
    return int(held[name])


def growing(held: Any) -> int:
    held.append(1)
    return len(held)


#: By name: makes what is held, and what the method does to it, which is a number.
WRITES: dict[str, tuple[Callable[[], Any], Callable[[Any], int]]] = {
    "slots beside attributes": (More, counting),
    "slots in a tuple": (lambda: (Slots(),), lambda held: counting(held[0])),
    "an iterator in a tuple": (lambda: (itertools.count(1),), lambda held: next(held[0])),
    "a list in a tuple in a tuple": (lambda: (([1],),), lambda held: growing(held[0][0])),
    "a deque in a named row": (lambda: Row((deque([1]),)), lambda held: growing(held[0])),
    "an object in a set": (lambda: {Held()}, lambda held: counting(next(iter(held)))),
    "the order of a dict": (lambda: {"a": 2, "b": 3}, first_to_end),
    "the order of an ordered dict": (lambda: OrderedDict(a=2, b=3), first_to_end),
}
MARKS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a tuple": (lambda: Row((1, 2)), lambda held: held),
    "a number": (lambda: Number(2), lambda held: held),
    "an object in a set": (lambda: {Held()}, lambda held: next(iter(held))),
    "an object in a deque": (lambda: deque([Held()]), lambda held: held[0]),
}


def layer_of(framework: Any, held: Any, way: Callable[[Any], Any]) -> Any:
    nn = framework.nn
    base = nn.Module if hasattr(nn, "Module") else nn.Layer

    class Layer(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.held = held

        def forward(self, x: Any) -> Any:
            return self.linear(x) * float(way(self.held))

    layer = Layer()
    layer.eval()
    return layer


def alike(framework: Any, eager: Any, mine: Any, between: Callable[[Any], None] = lambda layer: None) -> None:
    """Four calls each."""
    mine.linear.weight, mine.linear.bias = eager.linear.weight, eager.linear.bias
    with framework.no_grad():
        for _ in range(4):
            x = framework.rand([2, 4])
            between(eager)
            between(mine)
            assert mine(x).numpy() == pytest.approx(eager(x).numpy(), abs=1e-5)


def counts() -> dict[str, Any]:
    (found,) = stats().values()
    return found


@pytest.mark.parametrize("name", WRITES)
def test_what_a_method_changes_in_it(framework: Any, name: str) -> None:
    make, way = WRITES[name]
    alike(framework, layer_of(framework, make(), way), inference(layer_of(framework, make(), way)))
    assert counts()["hits"] == 0 and any("it changes self.held" in why for why in counts()["fallbacks"]), counts()


@pytest.mark.parametrize("name", MARKS)
def test_what_a_method_puts_there_again(framework: Any, name: str) -> None:
    make, of = MARKS[name]

    def back(layer: Any) -> None:
        of(layer.held).count = 2

    eager, mine = (layer_of(framework, make(), lambda held: marking(of(held))) for _ in range(2))
    back(eager), back(mine)  # type: ignore[func-returns-value]
    alike(framework, eager, inference(mine), back)
    assert of(mine.held).count == 7
