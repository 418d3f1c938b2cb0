"""Marks on entries that a process has loaded, so that eviction anywhere leaves them alone.

A mark is a shared ``flock`` on the entry's manifest, held for as long as an ``Entry`` that was read lives. The kernel
drops it when the process dies, however it dies: no stale marks, no process numbers to compare across containers.
Removing an entry needs the exclusive lock. Where a file system has no such locks, an entry used within the last day
counts as in use; on Windows the open descriptor alone keeps the entry from being moved.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from hybrid_infer.cache import _files

_flock: Callable[[int, int], None] | None
try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH
    from fcntl import flock as _flock
except ImportError:  # Windows
    _flock = None

_RECENT = 86_400.0
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


class Mark:
    """One open, locked descriptor; shared by all who use the same entry in this process."""

    __slots__ = ("__weakref__", "_close", "_fd")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # At interpreter exit the module may be gone before the last mark.
        self._close: Callable[[int], None] = os.close

    def __del__(self) -> None:
        try:
            self._close(self._fd)
        except OSError:
            # A network disk may only now say that it has lost the file; nothing was written through it.
            return


_marks: WeakValueDictionary[tuple[str, _files.Identity], Mark] = WeakValueDictionary()
_guard = threading.Lock()


def _renew_after_fork() -> None:
    # Another thread of the parent may have held it at the moment of the fork.
    global _guard
    _guard = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


def mark(path: str, directory: _files.Identity, owners: frozenset[int]) -> Mark | None:
    """Mark the entry whose manifest lies at `path`, in the directory of that identity.

    None: the entry is not there any more. Raises Damage or OSError.
    """
    key = path, directory
    with _guard:
        if (known := _marks.get(key)) is not None:
            return known
        try:
            fd, status = _files.open_trusted(path, owners)
        except (FileNotFoundError, NotADirectoryError):
            return None
        held = Mark(fd)
        if not _share(fd) or not _still_there(path, status):
            return None
        _marks[key] = held
        return held


def _share(fd: int) -> bool:
    if _flock is None:
        return True
    try:
        _flock(fd, LOCK_SH | LOCK_NB)
    except OSError as error:
        # Only one who is removing the entry holds it exclusively. Any other error: no locks on this file system.
        return error.errno not in _BUSY
    return True


def _still_there(path: str, status: os.stat_result) -> bool:
    try:
        return _files.identity(os.lstat(path)) == _files.identity(status)
    except (FileNotFoundError, NotADirectoryError):
        return False


@contextmanager
def removable(path: str, used: float) -> Iterator[bool]:
    """Hold the right to remove the entry whose manifest lies at `path`; False: somebody uses it.

    `used`: when it was last used, for file systems without locks. An entry without a manifest has no user.
    """
    if _flock is None:
        yield True
        return
    try:
        fd = os.open(path, _files.READ_WRITE)
    except OSError as error:
        # What cannot be opened cannot be used either, unless it is this process that has run out of descriptors.
        yield error.errno not in (errno.EMFILE, errno.ENFILE)
        return
    try:
        yield _seize(fd, used)
    finally:
        os.close(fd)


def _seize(fd: int, used: float) -> bool:
    if _flock is None:
        return True
    try:
        _flock(fd, LOCK_EX | LOCK_NB)
    except OSError as error:
        return error.errno not in _BUSY and abs(time.time() - used) > _RECENT
    return True
