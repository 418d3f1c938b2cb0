"""Iterators and variables of a thread: no trace comes to one, and a method that does not come to them is served."""

from __future__ import annotations

import copy
import itertools
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_support import counts, eagerly, same, served

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def rising() -> Iterator[int]:
    yield from range(1, 10**6)


class Numbered:
    """Takes numbers from iterators that nothing but its own methods read."""

    ids = itertools.count(1)
    generated = rising()
    local = threading.local()

    def __init__(self) -> None:
        self.listed = iter([1, 2, 3])
        self.pairs = enumerate([1, 2, 3])

    def by_class(self) -> int:
        return next(Numbered.ids)

    def by_generator(self) -> int:
        return next(self.generated)

    def by_list(self) -> int:
        return next(self.listed)

    def by_loop(self) -> int:
        for _, n in self.pairs:
            return n
        return 0

    def by_thread(self) -> int:
        self.local.n = getattr(self.local, "n", 0) + 1
        return int(self.local.n)

    def by_name(self) -> int:
        return next(getattr(self, "lis" + "ted"))

    def by_dict(self) -> int:
        return next(vars(self)["listed"])

    def by_getter(self) -> int:
        return next(operator.attrgetter("listed")(self))

    def inside(self) -> int:
        return max(next(self.listed) for _ in range(1))

    def by_global(self) -> int:
        return next(GLOBAL)


GLOBAL = itertools.count(1)
WAYS: tuple[Callable[[Numbered], int], ...] = (
    Numbered.by_class, Numbered.by_generator, Numbered.by_list, Numbered.by_loop, Numbered.by_thread, Numbered.by_name,
    Numbered.by_dict, Numbered.by_getter, Numbered.inside, Numbered.by_global,
)  # fmt: skip
NUMBERED = Numbered()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    global GLOBAL, NUMBERED
    Numbered.ids, Numbered.generated, Numbered.local = itertools.count(1), rising(), threading.local()
    GLOBAL, NUMBERED = itertools.count(1), Numbered()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_method_that_takes_from_one_runs_eagerly(way: Callable[[Numbered], int]) -> None:
    @inference()
    def numbered(x: torch.Tensor) -> torch.Tensor:
        return x + way(NUMBERED)

    with torch.no_grad():
        for n in range(1, 4 if way is not Numbered.by_loop else 3):
            same(numbered(X), X + n)
    eagerly("variables of the thread" if way is Numbered.by_thread else "iterator")


@pytest.mark.parametrize("way", WAYS[:7], ids=lambda way: way.__name__)
def test_one_that_could_and_does_not_is_served(way: Callable[[Numbered], int]) -> None:
    @inference()
    def numbered(x: torch.Tensor) -> torch.Tensor:
        return x + (way(NUMBERED) if x.dim() > 2 else 1)

    with torch.no_grad():
        for _ in range(3):
            same(numbered(X), X + 1)
        served(1)
        assert way(NUMBERED) == 1
        same(numbered(X[None]), X[None] + 2)  # the second of them
        same(numbered(X), X + 1)
    found = counts()
    assert found["captures"] == 1 and found["hits"] == 3, found
    assert ("iterator" if way is not Numbered.by_thread else "of the thread") in next(iter(found["fallbacks"])), found


def test_one_in_a_container_is_refused_whether_or_not_it_is_used() -> None:
    boxed = {"one": iter([1, 2, 3])}

    @inference()
    def numbered(x: torch.Tensor) -> torch.Tensor:
        return x + (next(boxed["one"]) if x.dim() > 2 else 1)

    with torch.no_grad():
        same(numbered(X), X + 1)
    eagerly("iterator", "enclosing function")
    assert next(boxed["one"]) == 1


def test_layers_that_number_themselves_are_served() -> None:
    class Counted(torch.nn.Module):
        new_id = itertools.count()

        def __init__(self) -> None:
            super().__init__()
            self.number = next(Counted.new_id)
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + self.number

        def copied(self) -> Any:
            other = copy.deepcopy(self)
            other.number = next(Counted.new_id)
            return other

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList([Counted(), Counted()])

        @inference
        def forward(self, x: torch.Tensor, more: bool = False) -> torch.Tensor:
            if more:
                self.parts.append(Counted())
            for part in self.parts:
                x = part(x)
            return x

    layer = Outer().eval()
    with torch.no_grad():
        expected = layer.parts[1](layer.parts[0](X))
        for _ in range(3):
            same(layer(X), expected)
    served(1)
    assert next(Counted.new_id) == 2
