"""One line at a terminal that says how far long work has come; nothing anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TypeVar

_Item = TypeVar("_Item")
_WIDTH = 20


def steps(items: Iterable[_Item], what: str) -> Iterator[_Item]:
    """The items one by one, with a bar on standard error while they are worked on, if that is a terminal."""
    stream: Any = sys.stderr
    if not isinstance(items, Sized) or stream is None or not stream.isatty():
        yield from items
        return
    started, count = time.monotonic(), len(items)
    try:
        for done, item in enumerate(items):
            bar = "#" * (_WIDTH * done // count)
            line = f"{what} [{bar:<{_WIDTH}}] {done}/{count}  {time.monotonic() - started:.0f} s"
            stream.write(f"\r\x1b[K{line}")
            stream.flush()
            yield item
    finally:
        stream.write("\r\x1b[K")
        stream.flush()
