"""Values that code reads and that change at nearly each call: a capture for each would never be used again."""

from __future__ import annotations

from collections.abc import Iterable

from hybrid_infer._differences import listed, of_keys

#: Captures in a row that served no other call than their own, after which no more are made for a while.
SHORT_LIVED = 8


class Turnover:
    """Of one instance: what its last capture was made of, and how many in a row were of no use."""

    def __init__(self) -> None:
        self._items: tuple[tuple[str, str], ...] = ()
        self._hits = self._short = 0

    def changes(self, items: Iterable[tuple[str, str]], hits: int) -> str:
        """What differs from the last capture, where one of code made of `items` would be in vain; else empty.

        `items` are the ingredients of a key (see `_keys.Key`). `hits`: the calls that were served until now.
        """
        before, self._items = self._items, tuple(items)
        served, self._hits = hits - self._hits, hits
        if not before or before == self._items:  # other arguments
            return ""
        self._short = 0 if served else self._short + 1
        if self._short <= SHORT_LIVED:
            return ""
        self._short -= 1  # it is tried once after each pause
        return listed([each.what for each in of_keys(self._items, before)])
