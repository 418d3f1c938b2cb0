"""Colours at a terminal, and where ``FORCE_COLOR`` asks for them, but not where ``NO_COLOR`` is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer import _options

#: Told apart by people who see no red or green too: each is also said in words.
_CODES = {"head": "1", "good": "1;34", "bad": "33", "faint": "2"}


def wanted(stream: Any) -> bool:
    """Does a stream lead to a terminal that may be sent colours, or does the user want them anywhere?"""
    asked = _options.colours()
    if stream is None or asked is not None:
        return bool(asked and stream is not None)
    return bool(getattr(stream, "isatty", lambda: False)())


def painter(on: bool) -> Callable[[str, str], str]:
    """A function from a text and what it is ("head", "good", "bad", "faint", "") to what to print."""
    if not on:
        return lambda text, kind: text
    return lambda text, kind: f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if kind in _CODES and text else text
