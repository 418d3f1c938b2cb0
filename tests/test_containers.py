"""Containers of classes that say otherwise what is in them, as registries do which load their entries when asked."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import answered, counts, layer_class, served

from hybrid_infer import inference

KINDS = {
    dict: (dict.__setitem__, dict.__getitem__),
    OrderedDict: (OrderedDict.__setitem__, OrderedDict.__getitem__),
    defaultdict: (dict.__setitem__, dict.__getitem__),
    list: (lambda box, _, value: list.append(box, value), list.__getitem__),
    deque: (lambda box, _, value: deque.append(box, value), deque.__getitem__),
    set: (lambda box, _, value: set.add(box, value), lambda box, _: next(set.__iter__(box))),
}
ASKED = ("values", "items", "keys", "__iter__", "__len__", "__reversed__", "__contains__", "get", "copy", "__bool__")


def registry(base: type, value: float) -> tuple[Any, Callable[[Any], float], Callable[[Any, float], None], list[str]]:
    """An instance of a class that notes whenever it is asked for what is in it; how to read it and to fill it."""
    asked: list[str] = []

    def noting(name: str) -> Any:
        def ask(*args: Any, **kwargs: Any) -> Any:
            asked.append(name)
            raise RuntimeError(f"{name} loads every entry")

        return ask

    put, get = KINDS[base]
    names = [name for name in ASKED if hasattr(base, name) or name == "__bool__"]
    kind = type("Registry", (base,), {name: noting(name) for name in names})

    def fill(box: Any, held: float) -> None:
        base.clear(box)  # type: ignore[attr-defined]
        put(box, 0, held)

    box = kind()
    fill(box, value)
    return box, lambda box: get(box, 0), fill, asked


def of_global(framework: Any, box: Any, read: Any) -> Any:
    global BOX, READ
    BOX, READ = box, read

    class Layer(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def forward(self, x: Any) -> Any:
            return x * READ(BOX)

    return Layer()


def of_closure(framework: Any, box: Any, read: Any) -> Any:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def forward(self, x: Any) -> Any:
            return x * read(box)

    return Layer()


def of_object(framework: Any, box: Any, read: Any) -> Any:
    class Held:
        table = box

    class Layer(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def forward(self, x: Any) -> Any:
            return x * read(Held.table)

    return Layer()


@pytest.mark.parametrize("base", KINDS, ids=lambda base: base.__name__)
@pytest.mark.parametrize("make", [of_global, of_closure, of_object])
def test_a_registry_is_not_looked_through(framework: Any, base: type, make: Any) -> None:
    box, read, fill, asked = registry(base, 2.0)
    layer = make(framework, box, read)
    x = framework.ones([2, 3])
    with framework.no_grad():
        for _ in range(2):
            assert float(layer(x)[0, 0]) == 2
        answered((), 2)
        fill(box, 3.0)
        for _ in range(2):
            assert float(layer(x)[0, 0]) == 3
    assert not asked and counts()["eager_calls"] == 0


@pytest.mark.parametrize("base", [dict, OrderedDict, list], ids=lambda base: base.__name__)
def test_one_that_a_layer_holds_cannot_be_copied(framework: Any, base: type) -> None:
    """Python's own copy asks it; the reason names the attribute, and the answer is the eager one."""
    box, read, _, _ = registry(base, 2.0)

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.box = box

        @inference()
        def forward(self, x: Any) -> Any:
            return x * read(self.box)

    layer = Layer()
    with framework.no_grad():
        assert float(layer(framework.ones([2, 3]))[0, 0]) == 2
    answered(("self.box cannot be copied",), 1)


def test_a_large_array_of_few_elements_is_watched(framework: Any) -> None:
    class Labelled(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.labels = np.array(["x" * 300] * 1000)  # 1.2 MB

        @inference
        def forward(self, x: Any) -> Any:
            return x * len(self.labels[0])

    layer = Labelled()
    for length in (300, 200):
        layer.labels[:] = "x" * length
        for _ in range(2):
            np.testing.assert_allclose(layer(framework.ones([2])).numpy(), [length, length])
    served(captures=2)
