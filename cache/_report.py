"""How the store says that something is wrong with it, and the error of an entry that cannot be used."""

from __future__ import annotations

import errno
import logging
import os
import warnings

from hybrid_infer import _fork_safe, _interrupts
from hybrid_infer._errors import CacheWarning, HybridInferError, users_level

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
    warnings.warn(message, CacheWarning, stacklevel=users_level())


_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REMEDY = "set HYBRID_INFER_CACHE_DIR or save_model_dir to a directory that you can write"
_told: set[str] = set()
_telling = _fork_safe.Lock()


def warn_unwritten(root: str, what: str, error: BaseException, reason: str) -> None:
    """Warn that something was not written to the store at `root`.

    Where that directory cannot be written at all, or has no room, this is said once in a process, whatever was to be
    written.
    """
    number = error.errno if isinstance(error, OSError) else None
    nowhere = number == errno.ENOENT and not os.path.isdir(root)  # no such directory can be made
    if number not in _UNWRITABLE + _FULL and not nowhere:
        warn(f"{what}: {reason}")
        return
    with _telling:
        told = root in _told
        _told.add(root)
    if told:
        logger.debug("%s: %s", what, reason)
        return
    remedy = f"make room there, or {_REMEDY}" if number in _FULL else _REMEDY
    warn(f"nothing was stored in {root} ({explain(error)}), so that each process compiles anew: {remedy}")


def explain(error: BaseException) -> str:
    """An error in words that say which call on which file failed, without the traceback.

    Raises one that is none of the disk's: a limit of time may be a TimeoutError, which is an OSError.
    """
    _interrupts.let_through(error)
    return f"{type(error).__name__}: {error}"
