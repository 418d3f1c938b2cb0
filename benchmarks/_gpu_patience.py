"""How long something may take before it is given up: torch's best mode times what it chooses from for minutes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds after which it is told again: what is raised where a callback or a destructor runs comes to nobody.
_AGAIN = 2.0


class _Late(BaseException):
    """No Exception: the compiler would take that for a choice that failed, and go on to the next."""


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raises TimeoutError behind the block, which ends after so many seconds.

    In the main thread, which alone may enter it.
    """
    if seconds is None:
        yield
        return

    def late(*_: Any) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Late:
        raise TimeoutError(f"it took longer than {seconds:g} s") from None
    finally:
        signal.signal(signal.SIGALRM, before)
