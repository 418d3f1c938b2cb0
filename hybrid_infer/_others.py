"""Do other programs take the cores from this one? Told by what the kernel has counted for them.

See proc(5), /proc/stat: times since the machine was started, by core, in ticks.
"""

from __future__ import annotations

import os
import time

#: A share of the cores' time: what others took of it, from which on a machine is busy, if less than `_FREE` was idle.
_TAKEN, _FREE = 0.2, 0.1
#: Programs that want the cores, by core, from which on more do than can have them: this one's threads are among them.
_WANTED = 1.5
_IDLE, _COUNTED = slice(3, 5), 8  # idle and iowait; the rest of the columns are parts of those before


class Others:
    """What others have done since this was made."""

    def __init__(self) -> None:
        self._before, self._own = _times(), time.process_time()

    def busy(self) -> bool:
        """Did others take so much that measurements are worth little? False where nothing is known."""
        after, own = _times(), time.process_time() - self._own
        if self._before is None or after is None:
            return False
        all_of_it, idle = (now - then for now, then in zip(after, self._before, strict=True))
        others = all_of_it - idle - own
        return all_of_it > 0 and others > _TAKEN * all_of_it and idle < _FREE * all_of_it


def crowded() -> bool:
    """Have more threads wanted the machine's cores than there are, in the last minute? False where nothing is known."""
    try:
        return os.getloadavg()[0] > _WANTED * (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return False


def _times() -> tuple[float, float] | None:
    """Seconds of the cores that this process may use, in all and idle; None where the kernel does not tell."""
    try:
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        tick = os.sysconf("SC_CLK_TCK")
        with open("/proc/stat", encoding="ascii") as file:
            rows = [line.split() for line in file if line.startswith("cpu")]
        counts = [[int(number) for number in row[1 : 1 + _COUNTED]] for row in rows if row[0] in cores]
    except (AttributeError, OSError, ValueError):
        return None
    if not counts:
        return None
    return sum(map(sum, counts)) / tick, sum(sum(row[_IDLE]) for row in counts) / tick
