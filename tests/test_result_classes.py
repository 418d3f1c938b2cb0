"""Classes of arguments and results are told from others of the same name: made by each call of a function, or anew."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class, served

from hybrid_infer import _structure, inference

OUT = """
from typing import Any, NamedTuple

class Out(NamedTuple):
    y: Any

    def scale(self): return {scale}
"""
LAYER = """
import enum

class Mode(enum.Enum):
    TWICE = 2
    THRICE = 3

class Layer(Base):
    @inference(verify=verify)
    def forward(self, x, mode=Mode.TWICE):
        return Out(x * (2 if mode is Mode.TWICE else 3))
"""


@pytest.fixture
def cells(framework: Any, verify: str) -> Iterator[Any]:
    """A module in which cells of a notebook run."""
    module = types.ModuleType("cells_of_a_notebook")
    vars(module).update(inference=inference, verify=verify, Base=layer_class(framework))
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def run(module: Any, cell: str) -> None:
    exec(compile(cell, "<cell>", "exec"), vars(module))


def right(framework: Any, module: Any, layer: Any, scale: int) -> None:
    for mode, factor in ((module.Mode.TWICE, 2), (module.Mode.THRICE, 3)):
        for _ in range(3):
            found = layer(framework.ones([2]), mode)
            assert type(found) is module.Out and found.scale() == scale
            np.testing.assert_allclose(found.y.numpy(), [factor, factor])


@pytest.mark.parametrize("verify", ["build", "off"])
def test_cells_are_run_again(framework: Any, cells: Any) -> None:
    run(cells, OUT.format(scale=1) + LAYER)
    right(framework, cells, cells.Layer(), 1)
    run(cells, OUT.format(scale=5) + LAYER)
    right(framework, cells, cells.Layer(), 5)


@pytest.mark.parametrize("verify", ["build", "off"])
def test_the_class_of_a_result_is_defined_anew(framework: Any, cells: Any) -> None:
    run(cells, OUT.format(scale=1) + LAYER)
    layer = cells.Layer()
    right(framework, cells, layer, 1)
    for scale in (5, 5, 7):  # the method names nothing of it that has changed, so that its static model stays
        run(cells, OUT.format(scale=scale))
        right(framework, cells, layer, scale)
    assert counts()["captures"] == 2 and not counts()["fallbacks"], counts()


def made(framework: Any) -> tuple[Any, type]:
    class Out:
        def __init__(self, y: Any) -> None:
            self.y = y

    class Layer(layer_class(framework)):  # type: ignore[misc]
        @inference
        def forward(self, x: Any, of: Any = None) -> Any:
            return Out(x * 2 if of is None else of.y * 2)

    return Layer(), Out


def test_each_call_of_a_function_makes_classes_of_its_own(framework: Any) -> None:
    alive = []
    for _ in range(3):
        layer, kind = made(framework)
        for _ in range(3):
            assert type(layer(framework.ones([2]))) is kind
            assert type(layer(framework.ones([2]), kind(framework.ones([2])))) is kind
        alive.append(weakref.ref(kind))
    served(captures=6)
    del layer, kind
    for _ in range(3):
        gc.collect()
    assert not [ref for ref in alive if ref() is not None]


def test_an_argument_of_a_namesake_is_another_call(framework: Any) -> None:
    def make(factor: int) -> Any:
        class Scaled:
            def __init__(self, y: Any) -> None:
                self.y = y

            def scaled(self) -> Any:
                return self.y * factor

        return Scaled(framework.ones([2]))

    class Layer(layer_class(framework)):  # type: ignore[misc]
        @inference
        def forward(self, given: Any) -> Any:
            return given.scaled()

    layer = Layer()
    for factor in (2, 3, 2, 3):
        for _ in range(2):
            np.testing.assert_allclose(layer(make(factor)).numpy(), [factor, factor])


HOLDERS = """
import collections

class Attention(Base):
    Cache = collections.namedtuple("Cache", "k v")

    class Inner:
        Pair = collections.namedtuple("Cache", "k v")

class Layer(Attention):
    @inference(verify=verify)
    def forward(self, cache):
        return self.Cache(cache.k * 2, Attention.Inner.Pair(cache.v, cache.v + 1))
"""


@pytest.mark.parametrize("verify", ["build", "off"])
def test_named_tuples_that_stand_in_classes_are_known_by_their_place(
    framework: Any, cells: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_structure, "_FIRST", {})
    held = []  # a class that is gone may have had the same address
    for _ in range(2):
        run(cells, HOLDERS)
        layer, one = cells.Layer(), framework.ones([2])
        held.append(cells.Attention)
        for _ in range(3):
            found = layer(cells.Attention.Cache(one, one))
            assert type(found) is cells.Attention.Cache and type(found.v) is cells.Attention.Inner.Pair
            np.testing.assert_allclose(found.v.v.numpy(), [2, 2])
    assert not _structure.lasts(_structure.name_of(cells.Attention.Inner.Pair))  # the first one has the name
    cells.Attention = held[0]
    name = _structure.name_of(cells.Attention.Inner.Pair)
    assert name == f"{cells.__name__}:Attention.Inner.Pair!k,v"
    assert _structure.class_of(name) is cells.Attention.Inner.Pair
    assert _structure.imported(f"{cells.__name__}:Attention.Cache!v,k") is None
    assert not _structure.lasts(_structure.name_of(type("Cache", (), {"__module__": cells.__name__})))


@pytest.mark.parametrize("verify", ["build", "off"])
def test_named_tuples_that_take_each_others_place_are_told_apart(framework: Any, cells: Any) -> None:
    run(cells, "import collections\n\nclass Held:\n    A = B = None")
    run(cells, "@inference(verify=verify)\ndef summed(x, p):\n    return x * p.a * p.scale()")

    def made(fields: str, scale: int = 1) -> Any:
        bare = cells.collections.namedtuple("P", fields, module=cells.__name__)
        return type("P", (bare,), {"scale": lambda self: scale, "__slots__": (), "__module__": cells.__name__})

    one = framework.ones([2])
    for fields in ("a b", "b a", "a b"):
        cells.Held.A, cells.K = made(fields), None
        cells.Held.B = made(fields[::-1])
        for kind in (cells.Held.A, cells.Held.B):
            cells.K = kind
            for _ in range(3):
                found = cells.summed(one, kind(a=2, b=5))
                np.testing.assert_allclose(found.numpy(), [2, 2])
    cells.Held.A = made("a b", scale=7)
    for _ in range(3):
        np.testing.assert_allclose(cells.summed(one, cells.Held.A(a=2, b=5)).numpy(), [14, 14])
