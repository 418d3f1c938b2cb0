"""Errors of a trace that the program keeps to itself: it has asked for a tensor's value, in a ``try`` of its own.

``try: n = int(x.max())``, ``except Exception: n = 1``: eagerly there is an answer, and no error. A trace that went on
would hold what the program does without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Errors:
    """Those of one trace, each added as it is raised.

    `packages`: the names of those that may catch them, and go on to the same result. So may this one; and a message
    that cannot be written is in no result.
    """

    def __init__(self, *packages: str) -> None:
        self._others = frozenset({*packages, "hybrid_infer", "logging"})
        self._met: dict[int, BaseException] = {}  # kept, so that their ids are theirs

    def add(self, fault: BaseException) -> None:
        self._met[id(fault)] = fault

    def made(self, make: Callable[..., Any], fault: BaseException, *args: Any, **kwargs: Any) -> None:
        """In place of the ``__init__`` of a class of errors."""
        make(fault, *args, **kwargs)
        self.add(fault)

    def caught(self) -> BaseException | None:
        """The first one that went no further than to the program, or to a library that it uses."""
        return next(filter(self._went_astray, self._met.values()), None)

    def clear(self) -> None:
        """The frames of their tracebacks hold what the trace has made."""
        self._met.clear()

    def _went_astray(self, fault: BaseException) -> bool:
        trace = fault.__traceback__  # begins with the outermost frame that it came to; None of one that is not raised
        if trace is None:
            return False
        return str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] not in self._others
