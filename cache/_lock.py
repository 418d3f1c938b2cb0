"""One builder at a time, across the threads of this process and across processes.

The lock only saves work: a publication is one rename, so two builders that meet do no harm. Where the file lock
cannot be had (a network disk without locks, a read-only directory), the caller goes on without it, and is told once;
the threads of this process still take turns.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer.cache import _files
from hybrid_infer.cache._report import explain, warn_unwritten

_POLL = 0.02


class _Gate:
    """A lock for the threads of this process, kept for as long as somebody holds it or waits for it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = _fork_safe.Lock()
        self.users = 0


_gates: dict[str, _Gate] = {}
_guard = _fork_safe.Lock()
_told: set[str] = set()


def _renew_after_fork() -> None:
    # Nobody in the child counts as a user of these. The file lock that a parent holds is closed in the child by
    # filelock, and keeps excluding it.
    _gates.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


@contextmanager
def gate(name: str, timeout: float) -> Iterator[bool]:
    """Take turns with the other threads of this process; False: another one held it for `timeout` seconds."""
    with _guard:
        mine = _gates.setdefault(name, _Gate())
        mine.users += 1
    held = False
    try:
        held = mine.lock.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))
        yield held
    finally:
        if held:
            mine.lock.release()
        with _guard:
            mine.users -= 1
            if mine.users == 0 and _gates.get(name) is mine:
                del _gates[name]


@contextmanager
def exclusive(path: str, timeout: float, root: str) -> Iterator[bool]:
    """Hold the lock file at `path` in the store at `root`.

    True: held, or it cannot be had for a reason other than somebody holding it. False: somebody else held it for
    `timeout` seconds. It is not reentrant: a thread that holds it waits for itself.
    """
    deadline = time.monotonic() + max(0.0, timeout)
    with gate(path, timeout) as turn:
        if not turn:
            yield False
            return
        lock = None
        try:
            lock = _acquire(path, max(0.0, deadline - time.monotonic()))
        except (OSError, NotImplementedError, RuntimeError, _files.Damage) as error:
            _tell(path, error, root)
            yield True
            return
        if lock is None:
            yield False
            return
        try:
            yield True
        finally:
            _release(path, lock, root)


def _acquire(path: str, timeout: float) -> Any | None:
    """The lock, or None if somebody else holds it; raises OSError, Damage and the like if there can be none."""
    import filelock

    directory = os.path.dirname(path)
    _files.make_directories(directory)
    for part in (os.path.dirname(directory), directory):
        _files.check_directory(part, frozenset({_files.current_user()}))
    options: dict[str, Any] = {"mode": _files.FILE_MODE, "thread_local": False}
    try:
        # A lock by mere existence would outlive a killed holder.
        lock = filelock.FileLock(path, fallback_to_soft=False, **options)
    except TypeError:  # filelock that knows no such fallback
        lock = filelock.FileLock(path, **options)
    try:
        lock.acquire(timeout=timeout, poll_interval=_POLL)
    # Timeout is an OSError (TimeoutError) too, so it has to be told from the others here.
    except filelock.Timeout:
        return None
    return lock


def _release(path: str, lock: Any, root: str) -> None:
    try:
        lock.release()
    except (OSError, RuntimeError) as error:
        _tell(path, error, root)


def _tell(path: str, error: BaseException, root: str) -> None:
    directory, why = os.path.dirname(path), explain(error)
    if directory not in _told:
        _told.add(directory)
        reason = f"{why}; several processes may do the same work at once"
        warn_unwritten(root, f"no lock in {directory}", error, reason)


def discard(path: str, root: str) -> None:
    """Remove a lock file that nobody holds; raises OSError."""
    with gate(path, 0) as turn:
        if turn and (lock := _acquire(path, 0)) is not None:
            try:
                os.unlink(path)
            finally:
                _release(path, lock, root)
