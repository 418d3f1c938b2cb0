"""How long something may take before it is given up: torch's best mode times what it chooses from for minutes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raises TimeoutError inside of the block after so many seconds, in the main thread, which alone may enter it."""
    if seconds is None:
        yield
        return

    def late(*_: Any) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
