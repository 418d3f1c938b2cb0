"""How long something is left alone that failed, or that somebody else is at work on, before it is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable


def before(end: float) -> Callable[[], bool]:
    """Is it earlier than `end`, of the monotonic clock?"""
    return lambda: time.monotonic() < end


def for_a_while(seconds: float) -> Callable[[], bool]:
    """The same for an end that is `seconds` away."""
    return before(time.monotonic() + seconds)


def minutes(times: int) -> Callable[[], bool]:
    """The same for a minute, and twice as long for each of the `times` that were in vain, up to about an hour."""
    return for_a_while(ever_longer(60.0, times, most=6))


def ever_longer(first: float, times: int, *, factor: float = 2.0, most: int = 10) -> float:
    """Seconds: `first`, and `factor` times as many for each of the `times` that were in vain, as far as `most` go."""
    return first * factor ** min(times, most)
