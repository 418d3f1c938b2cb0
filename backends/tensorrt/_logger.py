"""What TensorRT says: its errors become reasons, the rest goes to our log at DEBUG."""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hybrid_infer import _fork_safe
from hybrid_infer.backends.tensorrt import _causes

if TYPE_CHECKING:
    import tensorrt as trt

_log = logging.getLogger("hybrid_infer")

#: TensorRT's numbers for its severities: below this one it is an error, and from the next on it is chatter.
_WARNING = 2
_KEPT = 16


class Errors:
    """The latest errors of this process, by the order in which they came; from any thread of TensorRT's."""

    def __init__(self) -> None:
        self._lock = _fork_safe.Lock()
        self._said: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._count = 0
        self._scarce = 0  # when memory was last said to be short, even if TensorRT could do with less

    def add(self, severity: int, message: str) -> None:
        text = " ".join(message.split())
        if severity > _WARNING:
            return
        with self._lock:
            self._count += 1
            if severity < _WARNING:
                self._said.append((self._count, text))
            if _causes.of_the_moment(text):
                self._scarce = self._count
        _log.debug("tensorrt: %s", text)

    @contextmanager
    def since(self) -> Iterator[Said]:
        """Gives what was said from now on."""
        yield Said(self, self._count)

    def after(self, count: int) -> list[str]:
        with self._lock:
            return [text for n, text in self._said if n > count]


    def lasting_after(self, count: int) -> bool:
        return self._scarce <= count and _causes.lasting(self.after(count))


class Said:
    """The errors since some moment."""

    def __init__(self, errors: Errors, count: int) -> None:
        self._errors, self._count = errors, count

    def __bool__(self) -> bool:
        return bool(str(self))

    def __str__(self) -> str:
        """The first of them, which is the cause of the others; empty if there is none."""
        return next(iter(self._errors.after(self._count)), "")

    def lasting(self) -> bool:
        """Do they lie in what TensorRT was given, rather than in the moment?"""
        return self._errors.lasting_after(self._count)


ERRORS = Errors()


@functools.cache
def logger(trt: Any) -> trt.ILogger:
    """The one logger of this process: TensorRT keeps the first that it is given, and complains about any other."""

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
            ERRORS.add(int(severity), msg)

    return Logger()
