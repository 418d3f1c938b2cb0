"""Warnings of one thread that nobody sees, while those of others are treated as the program asked."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any


class _Here:
    """Stands in a filter for the pattern of a message: matches all messages of its own thread, for a while."""

    def __init__(self) -> None:
        self._thread: int | None = threading.get_ident()

    def match(self, _message: str) -> bool:
        return threading.get_ident() == self._thread

    def over(self) -> None:
        self._thread = None


@contextlib.contextmanager
def unwarned(category: type[Warning] = Warning) -> Iterator[None]:
    """Ignore what this thread warns of.

    ``warnings.catch_warnings`` is one for the whole process, unless Python keeps warnings by context: another thread
    would lose its own meanwhile, and where two overlap, "ignore" would stay for good.
    """
    if getattr(sys.flags, "context_aware_warnings", False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category)
            yield
        return
    here = _Here()
    entry: Any = ("ignore", here, category, None, 0)
    found: Any = warnings.filters
    found.insert(0, entry)
    try:
        yield
    finally:
        here.over()  # and so is each copy that somebody else has taken meanwhile, and puts back
        now: Any = warnings.filters
        for filters in (found, now):
            with contextlib.suppress(ValueError):
                filters.remove(entry)
