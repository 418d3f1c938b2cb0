"""A process-wide limit on the worker threads that engines keep.

A session that computes on n threads keeps n - 1 workers for as long as it lives. A layer of which many instances
are decorated would multiply them without end, so each session has a lease on its workers from one budget, and
where the budget is spent programs share a session instead (see `hybrid_infer.backends._program`).
"""

from __future__ import annotations

import os
from collections import deque

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork


def default_limit() -> int:
    """Workers allowed in one process where the options name no number: four per core, and 32 at least."""
    return max(32, 4 * (os.cpu_count() or 1))


class Lease:
    """Workers taken from a budget; `release` gives them back, once, and only in the process that took them.

    So does its end.
    """

    def __init__(self, budget: Budget, workers: int) -> None:
        self._budget, self.workers = budget, workers
        # At interpreter exit the module may be gone before the last lease.
        self._generation, self._now = _fork.generation(), _fork.generation

    def release(self) -> None:
        workers, self.workers = self.workers, 0
        if workers and self._generation == self._now():
            self._budget._returned.append(workers)

    def __del__(self) -> None:
        self.release()


class Budget:
    """Counts the workers that are alive in this process."""

    def __init__(self) -> None:
        self._lock = _fork_safe.Lock()
        self._forget()
        _fork.in_child(self._forget)

    def _forget(self) -> None:
        # Also run in a forked child: none of the parent's workers exist there.
        self._used = 0
        # Leases are released by finalisers, which run at any point of any thread, this class's own code included:
        # they must not need the lock.
        self._returned: deque[int] = deque()

    def _settle(self) -> int:
        while self._returned:
            self._used -= self._returned.popleft()
        return self._used

    @property
    def used(self) -> int:
        with self._lock:
            return self._settle()

    def take(self, workers: int, limit: int) -> Lease | None:
        """A lease on `workers` threads if no more than `limit` are alive then, else None; on none, in any case."""
        with self._lock:
            if workers and self._settle() + workers > limit:
                return None
            self._used += workers
        return Lease(self, workers)


#: The budget of this process.
BUDGET = Budget()
