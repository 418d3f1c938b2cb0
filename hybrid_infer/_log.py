"""The library's loggers: what reaches a user's terminal names the library, however the program formats its lines.

Paddle puts a handler on the root logger whose format leaves logger names out.
"""

from __future__ import annotations

import logging


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
