"""Marks on entries that a process has loaded, so that eviction anywhere leaves them alone.

A mark is a shared ``flock`` on the entry's manifest, held for as long as an ``Entry`` that was read lives. The kernel
drops it when the process dies, however it dies: no stale marks, no process numbers to compare across containers.
Removing an entry needs the exclusive lock. Where a file system has no such locks, an entry used within the last day
counts as in use; on Windows the open descriptor alone keeps the entry from being moved.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from hybrid_infer import _fork_safe
from hybrid_infer.cache import _files

_flock: Callable[[int, int], None] | None
try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH
    from fcntl import flock as _flock
except ImportError:  # Windows
    _flock = None

_RECENT = 86_400.0
_BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


_CLOSED = (-1, -1)


class Mark:
    """One open, locked descriptor; shared by all who use the same entry in this process."""

    __slots__ = ("__weakref__", "_close", "_fd", "identity")

    def __init__(self, fd: int, identity: _files.Identity) -> None:
        self._fd: int | None = fd
        self.identity = identity
        # At interpreter exit the module may be gone before the last mark.
        self._close: Callable[[int], None] = os.close

    def close(self) -> None:
        """Let go of the file; whoever asks for the mark next gets a new one."""
        fd, self._fd, self.identity = self._fd, None, _CLOSED
        if fd is not None:
            self._close(fd)

    def __del__(self) -> None:
        try:
            self.close()
        except OSError:
            # A network disk may only now say that it has lost the file; nothing was written through it.
            return


_marks: WeakValueDictionary[str, Mark] = WeakValueDictionary()
_guard = _fork_safe.Lock()


def mark(manifest: str, owners: frozenset[int]) -> Mark | None:
    """Mark the entry that has this manifest; None: it is not there any more. Raises Damage or OSError."""
    with _guard:
        try:
            # The file of a live mark is open, so its inode cannot have become another file's.
            if (known := _marks.get(manifest)) and known.identity == _files.identity(os.lstat(manifest)):
                return known
            made = _make(manifest, owners)
            if made is None or made.identity != _files.identity(os.lstat(manifest)):
                return None
        except (FileNotFoundError, NotADirectoryError):
            return None
        _marks[manifest] = made
        return made


def mark_staged(staged: str, manifest: str, owners: frozenset[int]) -> Mark | None:
    """Mark an entry that is about to be moved to where its manifest will be `manifest`, so that it is in use at once.

    None where that is not possible: Windows moves no directory in which a file is open. Raises Damage or OSError.
    """
    if _flock is None:
        return None
    with _guard:
        made = _make(staged, owners)
        if made is not None:
            _marks[manifest] = made
        return made


def _make(path: str, owners: frozenset[int]) -> Mark | None:
    fd, status = _files.open_trusted(path, owners)
    made = Mark(fd, _files.identity(status))
    return made if _share(fd) else None


def _share(fd: int) -> bool:
    if _flock is None:
        return True
    try:
        _flock(fd, LOCK_SH | LOCK_NB)
    except OSError as error:
        # Only one who is removing the entry holds it exclusively. Any other error: no locks on this file system.
        return error.errno not in _BUSY
    return True


@contextmanager
def removable(path: str, used: float) -> Iterator[bool]:
    """Hold the right to remove the entry whose manifest lies at `path`; False: somebody uses it.

    `used`: when it was last used, for file systems without locks. Raises FileNotFoundError if there is no manifest.
    """
    if _flock is None:
        yield True
        return
    try:
        fd = os.open(path, _files.READ_WRITE)
    except FileNotFoundError:
        raise
    except OSError as error:
        # What cannot be opened cannot be used either, unless it is this process that has run out of descriptors.
        yield error.errno not in (errno.EMFILE, errno.ENFILE)
        return
    try:
        yield _seize(fd, used) and _is_at(path, fd)
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


def _is_at(path: str, fd: int) -> bool:
    """Whether `fd` is still the file at `path`, rather than that of an entry that was replaced before it was locked."""
    try:
        return _files.identity(os.lstat(path)) == _files.identity(os.fstat(fd))
    except (FileNotFoundError, NotADirectoryError):
        return False
