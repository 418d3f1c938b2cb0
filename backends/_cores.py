"""Hand-over of the cores from a framework's thread pool to an engine's.

A decorated method takes turns with eager code, and each side has a pool whose threads spin for a while after their
work, on the cores that the other side now needs. The engine's pool is told by its own settings to stop at the end
of each run. The framework's is an OpenMP pool, which has a call of its own for that:

* GNU's libgomp (torch): ``omp_pause_resource_all`` gives the calling thread's pool back. Its threads are made anew
  by the next parallel region, so this is done only before runs that are long enough to pay for it, and not while
  several threads call engines: each has a pool of its own, and the cores that one leaves are taken by another's.
* Intel's or LLVM's libomp (Paddle): ``kmp_set_blocktime(0)`` puts the pool's threads to sleep at the end of each
  region, from then on; once for each thread that runs eager work.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import PurePath

from hybrid_infer.backends import _fork

_PAUSE_SOFT = 1

#: Seconds that a run must take for a pause of libgomp's pool to pay, and below which it no longer does. With two
#: threads the pause takes 20 us and the next parallel region 30 us more than it would; in turn with an equal amount
#: of eager work it lost a tenth at 0.5 ms, nothing at 1 ms, and gained a fifth at 12 ms and two thirds for 12 sections
#: of 1.5 to 3 ms. Pausing a pool that is paused already costs 0.3 us.
WORTH_IT = 1.5e-3
NOT_WORTH_IT = 0.75e-3

#: By which a user says how idle OpenMP threads are to wait. That choice stands: threads that were told to sleep
#: leave the cores by themselves, threads that were told to spin are meant to.
_USER_SETTINGS = {
    "libgomp": ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"),
    "libiomp": ("OMP_WAIT_POLICY", "KMP_BLOCKTIME"),
    "libomp": ("OMP_WAIT_POLICY", "KMP_BLOCKTIME"),
}

#: Runs of one thread after another, without a second one inside of an engine, after which a crowd has dispersed.
_DISPERSED = 32

Yield = Callable[[], None]


class Crowd:
    """Are several threads at work with engines? Programs say when one of their runs begins and ends.

    A list's own operations are atomic; the number is not, and a race makes no more of it than a run counted twice.
    """

    def __init__(self) -> None:
        self._inside: list[None] = []
        self.left = 0  # lone runs that are still to come before there is no crowd any more

    def enter(self) -> None:
        self._inside.append(None)
        if len(self._inside) > 1:
            self.left = _DISPERSED
        elif self.left:
            self.left -= 1

    def leave(self) -> None:
        self._inside.pop()


#: Of this process.
CROWD = Crowd()


class Pacer:
    """Decides from the times of a program's own runs whether the cores are handed over before the next one.

    The estimate follows a faster run at once and slower ones by a tenth each: a run that had to share its cores
    takes several times as long as the section really is.
    """

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self.seconds = 0.0
        self.hand_over: Yield | None = None

    def note(self, seconds: float) -> None:
        """Take in the time of one run. Races between threads lose a sample, which does not matter."""
        known = self.seconds
        self.seconds = known = seconds if seconds < known or not known else min(seconds, known * 1.1)
        if known > WORTH_IT:
            if self.hand_over is None:
                self.hand_over = yielder(self._framework)
        elif known < NOT_WORTH_IT:
            self.hand_over = None


def _nothing() -> None:
    """The hand-over where there is nothing to hand over, or no way to do it."""


_lock = threading.Lock()
_yielders: dict[str, Yield] = {}
_ended: set[str] = set()  # frameworks whose threads a hand-over ends


def yielder(framework: str) -> Yield:
    """The function that makes the pool of `framework` ("torch", "paddle") leave the cores.

    To be called on the thread that ran the eager work. It does nothing in a forked child, where it would hang,
    nor where no OpenMP runtime is known, or where the user's environment says how its threads are to wait.
    """
    with _lock:
        found = _yielders.get(framework)
        if found is None:
            found = _yielders[framework] = _make(framework) if _fork.generation() == 0 else _nothing
        return found


def ends_threads(framework: str) -> bool:
    """Does a hand-over end the threads of `framework`, so that its next parallel region makes them anew?"""
    yielder(framework)
    return framework in _ended


def _enter_child() -> None:
    global _lock, CROWD
    _lock, CROWD = threading.Lock(), Crowd()
    _yielders.clear()


_fork.in_child(_enter_child)


def _make(framework: str) -> Yield:
    for path in _mapped(framework):
        family = next(family for family in _USER_SETTINGS if PurePath(path).name.startswith(family))
        if any(name in os.environ for name in _USER_SETTINGS[family]):
            return _nothing
        try:
            # NOLOAD: the runtime that is in use, never another copy, whose pool would be another one too.
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            if family != "libgomp":
                return _sleep_at_once(library)
            found = _pause(library)
            _ended.add(framework)
            return found
        except (OSError, AttributeError):
            continue
    return _nothing


def _mapped(framework: str) -> list[str]:
    """Paths of the OpenMP runtimes in this process, the one that `framework` brought first; empty off Linux."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            fields = [line.rstrip("\n").split(maxsplit=5) for line in maps]
    except OSError:
        return []
    paths = {line[5] for line in fields if len(line) == 6}
    runtimes = [path for path in paths if PurePath(path).name.startswith(tuple(_USER_SETTINGS))]
    return sorted(runtimes, key=lambda path: (f"/{framework}" not in path, path))


def _pause(library: ctypes.CDLL) -> Yield:
    call = library.omp_pause_resource_all
    call.argtypes, call.restype = [ctypes.c_int], ctypes.c_int
    generation = _fork.generation

    def pause() -> None:
        if not generation() and not CROWD.left:
            call(_PAUSE_SOFT)

    return pause


def _sleep_at_once(library: ctypes.CDLL) -> Yield:
    call = library.kmp_set_blocktime
    call.argtypes, call.restype = [ctypes.c_int], None
    done = threading.local()

    def sleep_at_once() -> None:
        if not hasattr(done, "yes") and not _fork.generation():
            call(0)
            done.yes = True

    return sleep_at_once
