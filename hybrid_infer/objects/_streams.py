"""Files and other streams that a program keeps open, and iterators in C: what is taken from them is gone afterwards."""

from __future__ import annotations

import io
import sys
import types
import weakref
from typing import Any

_SLOT = types.WrapperDescriptorType


class Position:
    """Where a stream is."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._before = stream, stream.tell()

    def changed(self) -> str | None:
        try:
            return None if self._stream.tell() == self._before else ""
        except (OSError, ValueError):  # a text that is gone through tells no position; or it was closed
            return ""

    def restore(self) -> None:
        if not self._stream.closed:
            self._stream.seek(self._before)


def is_read(value: Any) -> bool:
    """Is it a stream from which may be read? One that is only written to has nothing that a method could go by.

    Nor have the program's outputs, which some that stand in their place would let be read.
    """
    if any(value is output for output in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
        return False
    try:
        return isinstance(value, io.IOBase) and not value.closed and value.readable()
    except Exception:  # of a class of the program's own, which says so in its own way
        return False


def memory(stream: Any) -> Position | None:
    """What is to be remembered of a stream; None where it cannot be wound back: a pipe, one that is being gone through.
    """
    try:
        return Position(stream) if stream.seekable() else None
    except (OSError, ValueError):
        return None


def is_iterator_in_c(value: Any) -> bool:
    """Is it an object that gives one thing after another, and keeps where it is to itself?

    >>> import csv, weakref
    >>> is_iterator_in_c(csv.reader(["a,b"])), is_iterator_in_c(["a"]), is_iterator_in_c(weakref.proxy(csv.Dialect))
    (True, False, False)
    """
    if isinstance(value, (io.IOBase, *weakref.ProxyTypes)):  # a proxy has all slots, whatever it stands for
        return False
    return isinstance(getattr(type(value), "__next__", None), _SLOT)
