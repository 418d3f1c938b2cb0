"""One tracer at a time, and what decorated methods are inside of it."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from hybrid_infer import _fork_safe

#: In the place of a result that nobody has computed.
NOTHING: Any = object()
CAPTURING = _fork_safe.Lock()


class _Busy(threading.local):
    capturing = False  # found at once in a thread that has captured nothing, where a default takes an error


_BUSY = _Busy()
#: Is this thread inside a capture of ours, or in the eager call that one is compared with? Each call asks.
capturing: Callable[[], bool] = functools.partial(getattr, _BUSY, "capturing")


@contextlib.contextmanager
def transparent() -> Iterator[None]:
    """Decorated methods that are called inside run as if they were not: one that calls itself waits for no lock."""
    before, _BUSY.capturing = capturing(), True
    try:
        yield
    finally:
        _BUSY.capturing = before


@contextlib.contextmanager
def exclusively() -> Iterator[None]:
    """Capture by itself alone in this process; on this thread, decorated methods are their functions meanwhile."""
    with CAPTURING, transparent():
        yield
