"""Versions of installed distributions, each read once for as long as it is the same one.

Its metadata takes a millisecond to find and to parse, which each look-up would pay. A leaf module, which imports
nothing of ours.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Any, NamedTuple


class _Known(NamedTuple):
    """``number`` is that of the distribution in the folder ``path``, which had that ``mark``, under ``sys.path``."""

    number: str
    places: list[str]
    path: str
    mark: tuple[int, ...]


_known: dict[str, _Known] = {}


def version(distribution: str) -> str:
    """The version of a distribution; empty where it is not installed."""
    known = _known.get(distribution)
    if known is not None and known.places == sys.path and known.mark == _mark(known.path):
        return known.number
    try:
        found = importlib.metadata.distribution(distribution)
        path = str(getattr(found, "_path", ""))
        mark = _mark(path)  # before it is read
        number = found.version
    except importlib.metadata.PackageNotFoundError:
        return ""
    if mark:
        _known[distribution] = _Known(number, list(sys.path), path, mark)
    return number


def _mark(path: str) -> tuple[int, ...]:
    """What tells a folder from another in its place, or from itself with other files; empty if there is none."""
    try:
        found: Any = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns
