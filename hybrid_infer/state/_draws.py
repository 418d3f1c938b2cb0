"""Generators of random numbers that the program keeps: what they would draw next, remembered and put back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any


class Draws:
    """One generator as it was. It is read and written past any override in a subclass."""

    def __init__(self, value: Any, read: Callable[[Any], Any], write: Callable[[Any, Any], None]) -> None:
        self._value, self._read, self._write = value, read, write
        self._state = read(value)
        self._before = _plain(self._state)

    def changed(self) -> str | None:
        return None if _plain(self._read(self._value)) == self._before else ""

    def restore(self) -> None:
        self._write(self._value, self._state)


def memory(value: Any) -> Draws | None:
    """What is to be remembered of a generator of Python's or NumPy's; None for anything else."""
    kind: Any
    if isinstance(value, random.Random):
        if isinstance(value, random.SystemRandom):  # which keeps nothing
            return None
        return Draws(value, random.Random.getstate, random.Random.setstate)
    found = sys.modules.get("numpy.random")
    if found is not None:
        kind = found.Generator
        if isinstance(value, kind):
            value = value.bit_generator
        if isinstance(value, found.BitGenerator):
            return Draws(value, lambda each: each.state, lambda each, state: setattr(each, "state", state))
        kind = found.RandomState
        if isinstance(value, kind):
            return Draws(value, kind.get_state, kind.set_state)
    return None


def _plain(state: Any) -> Any:
    """A state with the numbers of its arrays as bytes, to be compared."""
    if isinstance(state, dict):
        return {name: _plain(held) for name, held in state.items()}
    if isinstance(state, (tuple, list)):
        return [_plain(held) for held in state]
    return state.tobytes() if hasattr(state, "tobytes") else state
