"""What code does with locks while it is traced: whether one is held may not decide a result, and is left as it was."""

from __future__ import annotations

import dis
import threading
from typing import Any

KINDS = (type(threading.Lock()), type(threading.RLock()))

#: Methods that say whether a lock is held, that take one, and that let go of it.
ASKS = frozenset({"locked", "locked_lock", "_is_owned", "_recursion_count"})
TAKES = frozenset({"acquire", "acquire_lock", "__enter__"})
GIVES = frozenset({"release", "release_lock", "__exit__"})
NAMES = ASKS | TAKES | GIVES


def asks(frame: Any, name: str) -> bool:
    """Does a call of this method, which a frame is about to make, say whether the lock is held?

    To take it without waiting, or for a time alone, is to ask; what has no argument waits, and answers nothing.
    """
    return name in ASKS or (name in TAKES and not _bare(frame))


def _bare(frame: Any) -> bool:
    """Has the call that a frame is about to make no argument, as far as its code tells?"""
    for step in dis.get_instructions(frame.f_code):
        if step.offset == frame.f_lasti:
            return step.opname in ("CALL", "CALL_FUNCTION", "CALL_METHOD") and step.arg == 0
    return False


class Locks:
    """How often each lock was taken, less how often it was let go of: by the user's code, and by what that uses."""

    def __init__(self) -> None:
        #: Each with how often it was taken more than let go of, and how often of that by its ``__enter__``.
        self._taken: dict[int, list[Any]] = {}
        #: Where the user's code last did either.
        self.line = ("", 0)

    def done(self, lock: Any, name: str, line: tuple[str, int] | None) -> None:
        """A method of a lock has returned, to the user's code at a line or to a library's.

        A library may let go of a lock that it took by asking for it, which says nothing of whether it was free.
        """
        known = self._taken.get(id(lock))
        if line is not None:
            known, self.line = self._taken.setdefault(id(lock), [lock, 0, 0]), line
        if known is None:
            return
        if name in TAKES:
            known[1] += 1
            known[2] += name == "__enter__"
        elif name == "__exit__":  # whose other half a ``with`` calls unseen
            known[1] -= known[2] > 0
            known[2] -= known[2] > 0
        elif name in GIVES and (line is not None or known[1] > 0):
            known[1] -= 1

    def put_back(self) -> bool:
        """Leave each lock as it was found; was one left otherwise?"""
        changed = [(lock, times) for lock, times, _ in self._taken.values() if times]
        for lock, times in changed:
            for _ in range(abs(times)):
                if times < 0:
                    lock.acquire(blocking=False)
                elif not _let_go(lock):
                    break
        return bool(changed)


def _let_go(lock: Any) -> bool:
    try:
        lock.release()
    except RuntimeError:  # another thread did
        return False
    return True
