"""Attributes that a program gives to tensors, such as ``weight.scale = 0.5``: what is traced in their place has none.

The look-up of one that is missing there ends in ``__getattr__``, which no class of traced tensors has: it is lent one
while the method runs, and so gives what the program's own tensor holds.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from hybrid_infer.objects._state import PLAIN
from hybrid_infer.state._reads import by_program

_REWRITTEN = "paddle.jit.dy2static"  # in which Paddle looks up what rewritten code of the program asks for


class Looked:
    """What a method asks of the tensors that it is `traced` on, of which the first stand for `weights`.

    ``names``: the attributes that it asked for, by the place of the weight that does not have them.
    """

    def __init__(self, traced: Sequence[Any], weights: Sequence[Any]) -> None:
        self.names: dict[int, set[str]] = {}
        #: (place, name) of what cannot be told: anything but plain data may change where nobody looks.
        self.untold: list[tuple[int, str]] = []
        self._places = {id(tensor): place for place, tensor in enumerate(traced[: len(weights)])}
        self.traced, self._weights = traced, weights
        self._before = [*map(_attributes, traced)]

    def put(self) -> list[tuple[int, str]]:
        """(place, name) of attributes that the method has put on traced tensors; a framework's own have underscores."""
        now = [*map(_attributes, self.traced)]
        found = ((i, name) for i, names in enumerate(now) for name in sorted(names - self._before[i]))
        return [(i, name) for i, name in found if not name.startswith("_")]

    def up(self, tensor: Any, name: str) -> Any:
        """The value of an attribute that a traced tensor does not have. Raises AttributeError."""
        place = self._places.get(id(tensor))
        held = {} if place is None else vars(self._weights[place])
        if place is not None and (name in held or _asked_by_program()):
            self.names.setdefault(place, set()).add(name)
            if name in held:
                if type(held[name]) in PLAIN:
                    return held[name]
                if (place, name) not in self.untold:
                    self.untold.append((place, name))
        raise AttributeError(f"{type(tensor).__name__!r} object has no attribute {name!r}", name=name, obj=tensor)


@contextlib.contextmanager
def lookups(looked: Looked, but: Collection[type]) -> Iterator[None]:
    """Have the look-ups on traced tensors noted, except for those of classes `but`."""

    def __getattr__(self: Any, name: str) -> Any:
        return looked.up(self, name)

    lent = [kind for kind in {*map(type, looked.traced)} if kind not in but and not hasattr(kind, "__getattr__")]
    for kind in lent:
        setattr(kind, "__getattr__", __getattr__)  # noqa: B010
    try:
        yield
    finally:
        for kind in lent:
            delattr(kind, "__getattr__")


def _attributes(tensor: Any) -> set[str]:
    return {*getattr(tensor, "__dict__", ())}


def _asked_by_program() -> bool:
    frame = sys._getframe(3)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_REWRITTEN):
        frame = frame.f_back
    return by_program(frame)
