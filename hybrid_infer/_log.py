"""The library's loggers: what reaches a user's terminal names the library, however the program formats its lines.

Paddle puts a handler on the root logger whose format leaves logger names out.

Records about a method carry fields beside their text, as attributes of the record, which a formatter for JSON finds
there: ``event`` and ``method`` (module and qualified name) always, others by event.

================ ======= ==================================================================
event            level   fields
================ ======= ==================================================================
eager            WARNING ``reason``, ``remedy``: why the eager method answers, once for each
captured         DEBUG   ``seconds``
captured_again   WARNING ``reason``: what is another value in several static models on disk, once for each
built            DEBUG   ``engine``, ``seconds``
loaded           DEBUG   ``version``: key of the static model that came from disk
verified         DEBUG   ``engine``, ``error``: the largest difference from the eager result
chosen           INFO    ``engine`` ("eager" too), ``figures``: seconds of a call by engine
not_considered   INFO    ``engine``, ``reason``
kept_off_disk    INFO    ``reason``: compiled anew by each process
sizes_fixed      INFO    ``places``: dimensions that the tracer does not let vary
================ ======= ==================================================================

Times are in seconds. A method is never logged from a call that a ready program answers.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any


class _Named(logging.Filter):
    """Puts the library's name before what is said at INFO and above; DEBUG is read by those who asked for it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.INFO:
            record.msg = f"hybrid_infer: {record.msg}"
        return True


LOGGER = logging.getLogger("hybrid_infer")
for _logger in (LOGGER, logging.getLogger("hybrid_infer.cache")):  # a filter sees the records of its own logger alone
    if not any(type(each).__name__ == _Named.__name__ for each in _logger.filters):
        _logger.addFilter(_Named())


def tell(level: int, event: str, method: str, text: str, *values: object, **fields: Any) -> None:
    """Log a line about a method with its fields (see the table above)."""
    if LOGGER.isEnabledFor(level):
        with contextlib.suppress(ValueError, OSError):  # a stream that the program has closed
            LOGGER.log(level, text, *values, extra={"event": event, "method": method, **fields}, stacklevel=2)
