"""Code that runs only to say something: what logs, warns or writes to the standard streams, and all below it."""

from __future__ import annotations

import logging
import sys
import warnings
from types import CodeType, FunctionType
from typing import Any

#: What comes back from them is nothing that a method could go by.
_SAYING: frozenset[CodeType] = frozenset(
    {
        logging.Logger._log.__code__,
        logging.Logger.handle.__code__,
        warnings._showwarnmsg.__code__,  # type: ignore[attr-defined]
    }
)
_WRITES = ("write", "flush")


class Streams:
    """The standard streams of a moment, which may be objects of the program's own."""

    def __init__(self) -> None:
        self._streams = {id(stream): stream for stream in (sys.stdout, sys.stderr)}
        methods = [getattr(type(stream), name, None) for stream in self._streams.values() for name in _WRITES]
        self._writes = {method.__code__ for method in methods if isinstance(method, FunctionType)}

    def says(self, frame: Any) -> bool:
        """Does a frame run only to say something?"""
        while frame is not None:
            code = frame.f_code
            if code in _SAYING:
                return True
            if code in self._writes and id(frame.f_locals[code.co_varnames[0]]) in self._streams:
                return True
            frame = frame.f_back
        return False
