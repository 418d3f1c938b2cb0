"""Calls that are left alone while an engine serves others: a prompt is worth an engine, a step of one token is not.

Where no engine serves an instance, all its calls are left alone (see ``State.rest``). Else those are which look, at a
glance, like calls for which the eager method was the faster one: to read the signature of each would take longer than
some layers do, above all where a cache among the arguments is of another size each time. Whatever they are, the eager
method is right. So that an engine is not missed for long, one of them is looked at from time to time, and far more are
where engines have answered calls that look like them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

_LOOKS = 2  # calls of a kind at which the eager method was the faster one, one after the other, before the first lull
_LOST = 4  # times as many from then on, each time that an engine has answered a call of the kind all the same
_MOST = 64  # of them
#: Calls of a lull, of which each is twice as long as the one before. With the call that is looked at after it, a prime:
#: else those might be the same ones of each round of a program for ever.
_LONGEST = 66
_KINDS = 64  # of calls that are told apart
_TOLD = frozenset({bool, str, type(None)})


class _Kind:
    """Calls that look alike; ``left``: of those of a lull under way."""

    __slots__ = ("left", "length", "looks", "needs")

    def __init__(self) -> None:
        self.left, self.length, self.looks, self.needs = 0, 1, 0, _LOOKS


class Lulls:
    """Of one instance; ``known``: kinds of calls for which the eager method was the faster one, by what they look like.

    Threads may race: a call more or less is then looked at.
    """

    def __init__(self, frontend: Any) -> None:
        self.known: dict[Hashable, _Kind] = {}
        self._types, self._elements = frontend.tensor_types, frontend.elements

    def glance(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable:
        """What a call looks like: the power of two in which its tensors' elements lie, flags, and what else it is of.

        None where it is given no tensor by itself, which would tell large calls from small ones.
        """
        types, elements = self._types, self._elements
        count, told = 0, []
        for value in (*args, *kwargs.values()):
            kind = type(value)
            if kind in types:
                count += elements(value)
            told.append(value if kind in _TOLD else kind)
        return (count.bit_length(), *told, *kwargs) if count else None

    def take(self, glance: Hashable) -> bool:
        """Is a call to be left alone?"""
        kind = self.known.get(glance)
        if kind is None or kind.left <= 0:
            return False
        kind.left -= 1
        return True

    def lost(self, glance: Hashable) -> None:
        """Note that the eager method was the faster one for a call that was looked at."""
        if glance is None:
            return
        kind = self.known.get(glance)
        if kind is None:
            if len(self.known) >= _KINDS:
                self.known = {}
            kind = self.known[glance] = _Kind()
        kind.looks += 1
        if kind.looks >= kind.needs:
            kind.left, kind.length = kind.length, min(2 * kind.length, _LONGEST)

    def won(self, glance: Hashable) -> None:
        """Note that an engine answered a call."""
        kind = self.known.get(glance)
        if kind is not None and kind.looks:
            kind.left, kind.length, kind.looks, kind.needs = 0, 1, 0, min(_LOST * kind.needs, _MOST)
