"""Values that code reads and that change at nearly each call: a capture for each would never be used again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hybrid_infer._pauses import minutes

#: Captures in a row that served no other call than their own, after which no more are made for a while.
SHORT_LIVED = 8
#: The same where they took long: so many of them, if all together took this many seconds.
_FEW, _LONG = 2, 30.0


class Turnover:
    """Of one instance: what its last capture was made of, and how many in a row were of no use.

    ``resting`` is the route of its calls while nothing is captured and its code is not looked at; else None.
    """

    def __init__(self) -> None:
        self.resting: Any = None
        self._items: tuple[tuple[str, str], ...] = ()
        self._hits = self._short = self._pauses = 0
        self._seconds = 0.0

    def changes(self, items: Iterable[tuple[str, str]], hits: int) -> str:
        """What differs from the last capture, where one of code made of `items` would be in vain; else empty.

        `items` are the ingredients of a key (see `_keys.Key`). `hits`: the calls that were served until now.
        """
        before, self._items = self._items, tuple(items)
        served, self._hits = hits - self._hits, hits
        if not before or before == self._items:  # other arguments
            return ""
        if served:
            self._short, self._seconds, self._pauses = 0, 0.0, 0
            return ""
        self._short += 1
        if self._short <= (_FEW if self._seconds > _LONG else SHORT_LIVED):
            return ""
        from hybrid_infer._differences import listed, of_keys

        self._short -= 1  # it is tried once after each pause
        return listed([each.what for each in of_keys(self._items, before)])

    def took(self, seconds: float) -> None:
        """Count what a capture has cost."""
        self._seconds += seconds

    def pause(self) -> Callable[[], bool]:
        """Is the whole instance still to be left alone? Ever longer, where the next capture is in vain too."""
        self._pauses += 1
        return minutes(self._pauses - 1)
