"""GNU's OpenMP pool put to sleep while an engine works on the cores of its threads.

libgomp can end a pool (``omp_pause_resource_all``), whose threads the next parallel region makes anew. That takes 50 us
and more, and a thread just made is put on its master's core as long as the engine's threads still spin on the others:
in turn with OpenVINO one region in four took twice its time, in some processes nearly every one.

So the pool stays. Around the engine's run a parallel region is begun, the work of whose other threads is ``sem_wait``:
they leave the spinning of libgomp's barrier for the sleep of a semaphore, keep their cores, and are woken when the
engine is done. ``GOMP_parallel_start`` begins it and comes back at once on the calling thread, ``GOMP_parallel_end``
ends it; both are of libgomp's binary interface, in the form that compilers called until GCC 4.9 and that the runtime
keeps for their programs (https://gcc.gnu.org/onlinedocs/libgomp/Implementing-PARALLEL-Construct.html).

Every thread that begins a region has a pool of its own, and a region makes the pool where there is none yet. Only as
many threads take part as there are cores for their pools: where libgomp has more threads than that, it does not let
them spin, and there is nothing to gain.
"""

from __future__ import annotations

import ctypes
import os
import threading

from hybrid_infer.backends import _fork, _threads

_SEMAPHORE = ctypes.c_uint64 * 8  # at least as large as any sem_t, and aligned as one


#: The threads of the pools that take part.
_POOLS = _threads.Budget()


class _Thread(threading.local):
    """What a thread that calls engines keeps."""

    def __init__(self) -> None:
        self.semaphore = _SEMAPHORE()
        self.begun = False
        self.lease: _threads.Lease | None = None


class Asleep:
    """See `hybrid_infer.backends._cores.HandOver`. Raises AttributeError if `library` is no libgomp, or too old."""

    def __init__(self, library: ctypes.CDLL) -> None:
        blocking = ctypes.CDLL(library._name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)  # it lets go of Python's lock
        libc = ctypes.PyDLL(None)
        self._start, self._end = blocking.GOMP_parallel_start, blocking.GOMP_parallel_end
        self._start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
        self._end.argtypes = []
        self._start.restype = self._end.restype = None
        self._level, self._threads = library.omp_get_level, library.omp_get_num_threads
        self._most, self._cores = library.omp_get_max_threads, library.omp_get_num_procs
        self._clear, self._post = libc.sem_init, libc.sem_post
        self._clear.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
        self._post.argtypes = [ctypes.c_void_p]
        self._wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p)
        self._own = _Thread()

    def begin(self, threads: int) -> None:
        own = self._own
        if own.begun:  # an interrupt came before its end
            self.end()
        # Where a region would take more threads than torch does, torch has not begun any on this thread.
        most = self._most()
        if _fork.generation() or self._level() or not 1 < most <= threads:
            return
        if not self._leased(own, most - 1):
            return
        # Anew each time: a signal ends a wait early, and its post would be left over.
        self._clear(own.semaphore, 0, 0)
        own.begun = True
        self._start(self._wait, own.semaphore, 0)

    def _leased(self, own: _Thread, workers: int) -> bool:
        if own.lease is None or own.lease.workers != workers:
            own.lease = None
            own.lease = _POOLS.take(workers, self._cores() - 1)
        return own.lease is not None

    def end(self) -> None:
        own = self._own
        if not own.begun:
            return
        if not _fork.generation() and self._level():
            for _ in range(self._threads() - 1):
                self._post(own.semaphore)
            self._end()
        own.begun = False
