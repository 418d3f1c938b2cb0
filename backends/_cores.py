"""Hand-over of the cores from a framework's thread pool to an engine's, and back.

A decorated method takes turns with eager code, and each side has a pool whose threads spin for a while after their
work, on the cores that the other side now needs. The engine's pool is told by its own settings to stop at the end
of each run. The framework's is an OpenMP pool, and how its threads are put to sleep depends on its runtime:

* GNU's libgomp (torch) has a parallel region begun around the run, in which its other threads wait on a semaphore
  (see `hybrid_infer.backends._libgomp`).
* Intel's or LLVM's libomp (Paddle): ``kmp_set_blocktime(0)`` puts the pool's threads to sleep at the end of each
  region, from then on; once for each thread that runs eager work.
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import PurePath
from typing import Protocol

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork, _libgomp

#: Seconds that a run must take for a hand-over to pay, and below which it no longer does. With two threads of torch it
#: takes 12 us where no eager work is between two runs, else 30 to 40. In turn with an equal amount of eager work
#: OpenVINO gained from runs of 0.25 ms on: a tenth at 0.4 ms, a fifth at 2 ms. ONNX Runtime, whose threads wait for one
#: another less, lost what a hand-over takes up to 1 ms, and gained a tenth from 1.5 ms on.
WORTH_IT = 0.5e-3
NOT_WORTH_IT = 0.25e-3

#: By which a user says how idle OpenMP threads are to wait. That choice stands: threads that were told to sleep
#: leave the cores by themselves, threads that were told to spin are meant to.
_USER_SETTINGS = {
    "libgomp": ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"),
    "libiomp": ("OMP_WAIT_POLICY", "KMP_BLOCKTIME"),
    "libomp": ("OMP_WAIT_POLICY", "KMP_BLOCKTIME"),
}


class HandOver(Protocol):
    """``end`` is called after each ``begin``, on its thread, whatever came between; it may be called without one.

    ``threads``: how many the framework computes on.
    """

    def begin(self, threads: int) -> None: ...

    def end(self) -> None: ...


class Pacer:
    """Decides from the times of a program's own runs whether the cores are handed over before the next one.

    The estimate follows a faster run at once and slower ones by a tenth each: a run that had to share its cores
    takes several times as long as the section really is.
    """

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self.seconds = 0.0
        self.hand_over: HandOver | None = None

    def note(self, seconds: float) -> None:
        """Take in the time of one run. Races between threads lose a sample, which does not matter."""
        known = self.seconds
        self.seconds = known = seconds if seconds < known or not known else min(seconds, known * 1.1)
        if known > WORTH_IT:
            if self.hand_over is None:
                self.hand_over = of(self._framework)
        elif known < NOT_WORTH_IT:
            self.hand_over = None


class Nothing:
    """The hand-over where there is nothing to hand over, or no way to do it."""

    def begin(self, threads: int) -> None:
        pass

    def end(self) -> None:
        pass


_lock = _fork_safe.Lock()
_known: dict[str, HandOver] = {}


def of(framework: str) -> HandOver:
    """What makes the pool of `framework` ("torch", "paddle") leave the cores, on the thread that runs the eager work.

    It does nothing in a forked child, where it would hang, nor where no OpenMP runtime is known, or where the user's
    environment says how its threads are to wait.
    """
    with _lock:
        found = _known.get(framework)
        if found is None:
            found = _known[framework] = _make(framework) if _fork.generation() == 0 else Nothing()
        return found


_fork.in_child(_known.clear)


def _make(framework: str) -> HandOver:
    for path in _mapped(framework):
        family = next(family for family in _USER_SETTINGS if PurePath(path).name.startswith(family))
        if any(name in os.environ for name in _USER_SETTINGS[family]):
            return Nothing()
        try:
            # NOLOAD: the runtime that is in use, never another copy, whose pool would be another one too.
            library = ctypes.PyDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            return _libgomp.Asleep(library) if family == "libgomp" else SleepAtOnce(library)
        except (OSError, AttributeError):
            continue
    return Nothing()


def _mapped(framework: str) -> list[str]:
    """Paths of the OpenMP runtimes in this process, the one that `framework` brought first; empty off Linux."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            # A process has thousands of lines there, of which a few name a runtime.
            lines = [line for line in maps if "omp" in line and "/" in line]
    except OSError:
        return []
    paths = {line.rstrip("\n").split(maxsplit=5)[5] for line in lines}
    runtimes = [path for path in paths if PurePath(path).name.startswith(tuple(_USER_SETTINGS))]
    return sorted(runtimes, key=lambda path: (f"/{framework}" not in path, path))


class SleepAtOnce(Nothing):
    """libomp's pool, whose threads are told once to sleep at the end of each region."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._call = library.kmp_set_blocktime
        self._call.argtypes, self._call.restype = [ctypes.c_int], None
        self._done = threading.local()

    def begin(self, threads: int) -> None:
        if not hasattr(self._done, "yes") and not _fork.generation():
            self._call(0)
            self._done.yes = True
