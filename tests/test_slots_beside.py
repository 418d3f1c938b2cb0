"""Slots of objects that keep attributes beside them: what is read there counts, and only that."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import inference


class Above:
    __slots__ = ("_Above__own", "__extra__", "unread", "width")


class Settings(Above):
    """Below a class with slots, so that objects have a dict as well."""

    def __init__(self) -> None:
        self.scale, self.width, self.unread, self.__extra__ = 2.0, 3.0, 5.0, {"more": 7.0}
        self._Above__own = [4.0]

    @property
    def own(self) -> Any:
        return self._Above__own[0]

    def __getattr__(self, name: str) -> Any:
        """As libraries have it, with a look-up that no recording class sees."""
        try:
            return object.__getattribute__(self, "__extra__")[name]
        except KeyError:
            raise AttributeError(name) from None


class Apart:
    """Slots of which one is for attributes, as those of pydantic's models are."""

    __slots__ = ("__dict__", "width")

    def __init__(self) -> None:
        self.scale, self.width = 2.0, 3.0


def put(name: str, value: Any) -> Callable[[Any], None]:
    return lambda held: setattr(held, name, value)


WAYS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], None], int]] = {
    "slot": (Settings, lambda held: held.width, put("width", 5.0), 2),
    "slot of a class with a dict": (Apart, lambda held: held.width, put("width", 5.0), 2),
    "private": (Settings, lambda held: held.own, put("_Above__own", [5.0]), 2),
    "changed in place": (Settings, lambda held: held.own, lambda held: held._Above__own.append(1.0), 2),
    "by an accessor": (Settings, lambda held: held.more, lambda held: held.__extra__.update(more=8.0), 2),
    "by an accessor, later": (
        Settings, lambda held: getattr(held, "other", 1.0), lambda held: held.__extra__.update(other=8.0), 2,
    ),
    "named like Python's own": (Settings, lambda held: held.__extra__["more"], put("__extra__", {"more": 8.0}), 2),
    "emptied": (Settings, lambda held: float(hasattr(held, "width")), lambda held: delattr(held, "width"), 2),
    "filled": (Apart, lambda held: float(hasattr(held, "more")), put("more", 1.0), 2),
    "copied": (Apart, lambda held: copy.copy(held).width, put("width", 5.0), 2),
    "unread": (Settings, lambda held: held.width, put("unread", 6.0), 1),
    "unread beside it": (Apart, lambda held: held.width, put("scale", 6.0), 1),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_is_read_in_a_slot_counts(framework: Any, way: str) -> None:
    kind, read, change, captures = WAYS[way]

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.held = kind()

        def forward(self, x: Any) -> Any:
            return x * read(self.held)

    held = Layer()
    layer, x = inference(held, verify="off"), framework.ones([2, 3])
    with framework.no_grad():
        for _ in range(2):
            assert layer(x).numpy() == pytest.approx(read(held.held))
        change(held.held)
        for _ in range(2):
            assert layer(x).numpy() == pytest.approx(read(held.held))
    found = counts()
    assert found["captures"] == captures and found["hits"] >= 2, found


def test_a_slot_of_the_layer_itself_counts(framework: Any) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        __slots__ = ("by",)

        def forward(self, x: Any) -> Any:
            return x * self.by

    held = Layer()
    object.__setattr__(held, "by", 2.0)
    layer, x = inference(held, verify="off"), framework.ones([2, 3])
    with framework.no_grad():
        assert layer(x).numpy() == pytest.approx(2.0)
        object.__setattr__(held, "by", 3.0)
        assert layer(x).numpy() == pytest.approx(3.0)
