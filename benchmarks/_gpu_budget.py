"""How long a run may take, and which rows still fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Budget:
    """`seconds` for a whole run from now on, `limit` for each process of it, `patience` for a peer's first call."""

    def __init__(
        self, seconds: float | None, limit: float, clock: Callable[[], float] = time.monotonic,
        patience: float | None = None,
    ) -> None:  # fmt: skip
        self._clock, self._limit, self.patience = clock, limit, patience
        self._end = math.inf if seconds is None else clock() + seconds
        self._took: dict[str, float] = {}

    def left(self) -> float:
        return self._end - self._clock()

    def limit(self) -> float:
        """Seconds that the next process may take: it ends with the budget, if not before."""
        return min(self._limit, self.left())

    def fits(self, model: str) -> bool:
        """Is there time for another row of that model? The first is tried: its first figures come soon."""
        return self.left() > self._took.get(model, 0.0)

    def stop(self) -> None:
        """There is no time for anything more."""
        self._end = -math.inf

    def took(self, model: str, seconds: float) -> None:
        self._took[model] = max(seconds, self._took.get(model, 0.0))
