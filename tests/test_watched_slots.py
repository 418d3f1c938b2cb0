"""Slots of objects that code names: watched by what they hold, whatever else their names stand for."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from support import counts, layer_class, served

from hybrid_infer import inference


class Own:
    __slots__ = ("__scale", "empty")

    def __init__(self, scale: float) -> None:
        self.__scale = scale

    def put(self, scale: float) -> None:
        self.__scale = scale

    @property
    def scale(self) -> float:
        return self.__scale


class Above:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


class Below(Above):
    """Its ``scale`` is another one; that of the slot is under it."""

    scale: Any = property(lambda self: Above.__dict__["scale"].__get__(self, Above))

    def __init__(self, scale: float) -> None:
        self.put(scale)

    def put(self, scale: float) -> None:
        Above.__dict__["scale"].__set__(self, scale)


OWN, BELOW, KIND = Own(2.0), Below(3.0), Literal


def named(x: Any) -> Any:
    return x * OWN.scale * BELOW.scale if KIND is not None else x


@pytest.mark.parametrize("held", [OWN, BELOW], ids=["private", "covered"])
def test_only_a_change_is_one(framework: Any, held: Any) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return named(x)

    layer = inference(Layer())
    before, x = held.scale, framework.ones([2, 3])
    with framework.no_grad():
        for _ in range(4):
            assert layer(x).numpy() == pytest.approx(6.0)
        served(captures=1)
        assert counts()["hits"] == 3
        held.put(before * 2)
        try:
            assert layer(x).numpy() == pytest.approx(12.0)
        finally:
            held.put(before)
    assert counts()["captures"] == 2


class Single:
    __slots__ = ("scale",)
    by = 1.0

    def scaled(self) -> Any:
        return self.scale * self.by  # type: ignore[has-type]


class Triple:
    __slots__ = ("scale",)
    by = 3.0

    def scaled(self) -> Any:
        return self.scale * self.by  # type: ignore[has-type]


class NothingOnce:
    __slots__ = ()

    def scaled(self) -> Any:
        return 2.0


class NothingThrice(NothingOnce):
    __slots__ = ()

    def scaled(self) -> Any:
        return 6.0


class ListOnce(list):  # type: ignore[type-arg]
    __slots__ = ()

    def scaled(self) -> Any:
        return 2.0


class ListThrice(ListOnce):
    __slots__ = ()

    def scaled(self) -> Any:
        return 6.0


@pytest.mark.parametrize("kinds", [(Single, Triple), (NothingOnce, NothingThrice), (ListOnce, ListThrice)])
def test_another_class_is_a_change(framework: Any, kinds: tuple[type, type]) -> None:
    held: Any = kinds[0]()
    if kinds[0] is Single:
        held.scale = 2.0

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * held.scaled()

    layer, x = inference(Layer()), framework.ones([2, 3])
    with framework.no_grad():
        for kind, expected in ((kinds[0], 2.0), (kinds[1], 6.0), (kinds[0], 2.0)):
            held.__class__ = kind
            for _ in range(2):
                np.testing.assert_allclose(layer(x).numpy(), expected)
    served(captures=2)
