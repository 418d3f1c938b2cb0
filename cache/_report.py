"""How the store says that something is wrong with it, and the error of an entry that cannot be used."""

from __future__ import annotations

import logging
import warnings

from hybrid_infer._errors import CacheWarning, HybridInferError

logger = logging.getLogger("hybrid_infer.cache")
# The warning below reaches the user already; without a handler, logging would print the same line again.
logger.addHandler(logging.NullHandler())


class DamagedEntry(HybridInferError):
    """Something that was found in the store cannot be used; treat it as a miss.

    Fields: ``path`` of the entry or plan, ``reason``, and ``absent``: nothing is wrong with it, it was removed
    meanwhile (by eviction, or by somebody who deleted the store) or belongs to a newer release. Only what is not
    ``absent`` is warned about.
    """

    def __init__(self, path: str, reason: str, absent: bool = False) -> None:
        super().__init__(path, reason, absent)
        self.path, self.reason, self.absent = path, reason, absent

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def warn(message: str) -> None:
    """Log `message` and issue it as a CacheWarning; call it last, since a filter may turn it into an exception."""
    logger.warning(message)
    warnings.warn(message, CacheWarning, stacklevel=3)


def explain(error: BaseException) -> str:
    """An error in words that say which call on which file failed, without the traceback."""
    return f"{type(error).__name__}: {error}"
