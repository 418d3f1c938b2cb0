"""What containers hold beside their items, and what their classes make of items: all is as eager calls have it."""

from __future__ import annotations

import dataclasses
import enum
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from hybrid_infer import inference, stats


def _hits(methods: int) -> bool:
    """Has an engine answered calls of each of them?"""
    return sum(found["hits"] > 1 for found in stats().values()) == methods


class Listed(list[Any]):
    scale = 1


class Tupled(tuple[Any, ...]):
    scale = 1


class Pair(NamedTuple):
    y: Any


class Named(Pair):
    scale = 1


class Ordered(OrderedDict[str, Any]):
    scale = 1


@dataclasses.dataclass
class Called:
    y: Any
    scale = 1

    def __call__(self) -> None: ...


@dataclasses.dataclass(slots=True)
class Slotted:
    y: Any


@dataclasses.dataclass
class Output(OrderedDict[str, Any]):
    y: Any = None
    z: Any = None
    scale = 1

    def __post_init__(self) -> None:
        if self.y is not None:
            self["y"] = self.y

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        super().__setattr__(name, value)


MADE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (lambda y: Listed([y]), lambda held: held[0]),
    "tuple": (lambda y: Tupled([y]), lambda held: held[0]),
    "named tuple": (Named, lambda held: held.y),
    "ordered dict": (lambda y: OrderedDict(y=y), lambda held: held["y"]),
    "dataclass": (Called, lambda held: held.y),
    "output": (Output, lambda held: held.y),
}


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("name", MADE)
def test_an_attribute_of_a_container(framework: Any, name: str, verify: str) -> None:
    make, get = MADE[name]

    @inference(verify=verify)
    def scaled(held: Any) -> Any:
        return get(held) * getattr(held, "scale", 1)

    @inference(verify=verify)
    def made(y: Any, scale: int) -> Any:
        held = make(y * 2)
        if scale != 1:
            held.scale = scale
        return held

    for scale in (1, 1, 3, 5, 1, 3):
        held = make(framework.ones([2]))
        if scale != 1:
            held.scale = scale
        np.testing.assert_allclose(scaled(held).numpy(), [scale, scale])
        found = made(framework.ones([2]), scale)
        assert type(found) is type(held) and getattr(found, "scale", 1) == scale
        np.testing.assert_allclose(get(found).numpy(), [2, 2])
    reasons = [each for found in stats().values() for each in found["fallbacks"]]
    assert _hits(2) and all("beside what it is made of" in each for each in reasons), reasons


@pytest.mark.parametrize("verify", ["build", "off"])
def test_items_that_are_no_fields(framework: Any, verify: str) -> None:
    @inference(verify=verify)
    def total(held: Any) -> Any:
        return (held.y if "z" in held else held["y"]) * (len(held) + held.get("extra", 0))

    def one(n: int = 1) -> Any:
        return framework.ones([2]) * n

    def changed(**items: Any) -> Output:
        held = Output(one())
        OrderedDict.update(held, items)
        return held

    last = Output(one(5))
    last["z"] = None
    assert [*last] == ["y", "z"]
    first = Output(None, one())
    first["z"], first["y"] = one(), one(2)
    assert [*first] == ["z", "y"]
    for held in (Output(one()), Output(one(3)), changed(extra=4), changed(extra=7), changed(y=one(9)), last, first):
        for _ in range(2):
            expected = (held.y if "z" in held else held["y"]) * (len(held) + held.get("extra", 0))
            np.testing.assert_allclose(total(held).numpy(), expected.numpy())
    assert _hits(1)


class Longer(list[Any]):
    def __init__(self, items: Any) -> None:
        super().__init__([*items, 7])


class LongerTuple(tuple[Any, ...]):
    def __new__(cls, items: Any) -> Any:
        return super().__new__(cls, [*items, 7])


class Turned(Pair):
    __slots__ = ()

    def __new__(cls, y: Any) -> Any:
        return super().__new__(cls, y * 3)


@dataclasses.dataclass
class Doubled:
    y: Any

    def __post_init__(self) -> None:
        self.y = self.y * 3

    def __call__(self) -> None: ...


@dataclasses.dataclass
class DoubledOutput(Output):
    def __post_init__(self) -> None:
        self["y"] = self.y * 3


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("kind", [Longer, LongerTuple, Turned, Doubled, DoubledOutput])
def test_a_class_that_makes_other_items_of_those_it_is_given(framework: Any, kind: Any, verify: str) -> None:
    def get(held: Any) -> Any:
        return held.y if hasattr(held, "y") else held[0]

    def size(held: Any) -> int:
        return len(held) if isinstance(held, (list, tuple, dict)) else 1

    @inference(verify=verify)
    def given(held: Any) -> Any:
        return get(held) * size(held)

    @inference(verify=verify)
    def made(y: Any) -> Any:
        return kind([y * 2]) if kind in (Longer, LongerTuple) else kind(y * 2)

    for n in range(1, 4):
        y = framework.ones([2]) * n
        held = kind([y]) if kind in (Longer, LongerTuple) else kind(y)
        np.testing.assert_allclose(given(held).numpy(), (get(held) * size(held)).numpy())
        found = made(y)
        assert type(found) is kind and size(found) == size(held)
        np.testing.assert_allclose(get(found).numpy(), get(held).numpy() * 2)
    assert _hits(2) and not any(found["fallbacks"] for found in stats().values()), stats()


class Alike(enum.Enum):
    ONE, TWO = 1, 2

    def __eq__(self, other: object) -> bool:
        return type(other) is Alike

    def __hash__(self) -> int:
        return 0


class AlikeClasses(type):
    def __eq__(cls, other: object) -> bool:
        return type(other) is AlikeClasses

    def __hash__(cls) -> int:
        return 0


class First(metaclass=AlikeClasses):
    value = 1


class Second(metaclass=AlikeClasses):
    value = 2


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("values", [tuple(Alike), (First, Second)], ids=["members", "classes"])
def test_arguments_that_their_class_takes_for_equal(framework: Any, values: Any, verify: str) -> None:
    @inference(verify=verify)
    def scaled(x: Any, by: Any) -> Any:
        return x * by.value

    for _ in range(3):
        for by in values:
            np.testing.assert_allclose(scaled(framework.ones([2]), by).numpy(), [by.value] * 2)
    assert _hits(1)
