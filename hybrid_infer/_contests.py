"""Engine or eager method while gradients are recorded: to connect an engine's results to a backward pass has its price.

Engines are measured as they serve where no gradient is recorded. Connecting their results costs the same for a method
of any size, so that one which saves little is slower than the eager method then. Both are right: the program's own
calls are answered by each in turn, and timed; of the backward pass nothing is known by then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

REASON = "while gradients are recorded, the eager method is faster"
REMEDY = "Call it under no_grad(), or decorate a larger part"

_T = TypeVar("_T")
_PRICE = 3e-4  # seconds that the connection costs at most
_TURNS = 3  # of each
_MARGIN = 1.1  # by which the eager method has to be faster: less is within the noise
_MOST = 64  # kinds of calls of one static model


class Contest:
    """Of calls of one signature.

    >>> contest = Contest()
    >>> while contest.open:
    ...     eager = contest.eager
    ...     _ = contest.timed(eager, lambda: time.sleep(0 if eager else 1e-3))
    >>> contest.eager
    True
    """

    def __init__(self) -> None:
        self._seconds: tuple[list[float], list[float]] = [], []
        self.open = True
        self.eager = False  #: Is the next call the eager method's?

    def timed(self, eager: bool, answer: Callable[[], _T]) -> _T:
        """Answer a call, and note what that takes. Raises what the answer raises, which is no turn then."""
        if not self.open:
            return answer()
        begun = time.perf_counter()
        result = answer()
        self._seconds[eager].append(time.perf_counter() - begun)
        engines, eagers = self._seconds
        self.open = min(len(engines), len(eagers)) < _TURNS
        self.eager = len(eagers) < len(engines) if self.open else min(eagers) * _MARGIN < min(engines)
        return result


def of(route: Any, key: Hashable) -> Contest | None:
    """That of the calls of a signature; None where the engine was named by the user, or is faster by far."""
    if max(route.scales.values(), default=math.inf) >= _PRICE:
        return None
    known = route.held.contests  # a route lives no longer than its weights
    found: Contest | None = known.get((route.program.engine, key))
    if found is None and len(known) < _MOST:
        found = known.setdefault((route.program.engine, key), Contest())
    return found
