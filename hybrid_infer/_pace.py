"""Look-ups that cost more than they bring: calls differ, or what a method reads is written between them.

A call whose route no longer holds has its layer and code looked at again, for milliseconds, whether another static
model answers it then, the same one, or none. Where that takes longer than the eager method itself, call for call, the
eager method answers for a while.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hybrid_infer._pauses import ever_longer, for_a_while

REASON = "most of its calls have to be looked up, and that takes longer than the eager method"
REMEDY = "Pass what differs from call to call as a tensor, and write what the method reads only when it changes"

_WINDOW = 16  # look-ups over which the cost of a call is taken
_PROBES = 2  # eager calls that are timed
_CHEAP = 2e-4  # seconds of look-ups a call that are not worth a thought
_PAUSE, _MOST = 1.0, 6  # seconds for which the eager method answers, and how often they are doubled


class Pace:
    """Of one instance; ``served``: the calls that an engine answered since its last look-up."""

    def __init__(self) -> None:
        self.served = 0
        self._seconds, self._lookups, self._calls = 0.0, 0, 0
        self._eager, self._probes = math.inf, 0
        self._pauses = 0
        self._resting: Callable[[], bool] | None = None

    def rests(self) -> bool:
        """Is this call, which would have to be looked up, one that the eager method is to answer?"""
        return self._probes > 0 or (self._resting is not None and self._resting())

    def eager_took(self, seconds: float) -> None:
        """Note what an eager call has taken instead of a look-up."""
        if self._probes > 0:
            self._eager, self._probes = min(self._eager, seconds), self._probes - 1
            if self._probes == 0:
                self._judge()

    def looked_up(self, seconds: float) -> None:
        """Note a look-up that ended with what was there: nothing was captured, built or measured for it."""
        self._seconds += seconds
        self._lookups += 1
        self._calls += 1 + self.served
        self.served = 0
        if self._lookups < _WINDOW:
            return
        if self._seconds < _CHEAP * self._calls:
            self._pauses = 0
            self._begin()
        else:
            self._eager, self._probes = math.inf, _PROBES

    def _judge(self) -> None:
        if self._seconds > self._eager * self._calls:
            self._resting = for_a_while(ever_longer(_PAUSE, self._pauses, most=_MOST))
            self._pauses += 1
        else:
            self._pauses = 0
        self._begin()

    def _begin(self) -> None:
        self._seconds, self._lookups, self._calls = 0.0, 0, 0
