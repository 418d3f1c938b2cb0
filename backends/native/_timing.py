"""The time that work takes on a GPU, a recorded graph of a few runs, on memory that lies in no cache at first.

What is timed is what a call launches: each of a library's kernels, and what it clears for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer._types import Memory
from hybrid_infer.backends._cuda._memory import ALIGNMENT, block
from hybrid_infer.backends.native._apart import apart
from hybrid_infer.backends.native._device import Device

#: Bytes that are read so that a second-level cache holds nothing else (an H200's has 60 MB), and their parts: each is
#: copied to the place of the first, so that little of what the cache holds is still to be written.
FLUSHED, _PARTS = 72 << 20, 9

#: Bytes of numbers that all memory is filled with: an arithmetic unit takes less power for zeros, and is faster.
_FILLED = 1 << 20

#: Rounds in which all work is timed, while clocks rise too; those that follow, and how much longer than the shortest
#: work may take to be timed in them.
_FIRST, _MORE, _NEAR = 2, 4, 1.25

#: Held by a build while it times anything: the work of another thread's would take time too.
MEASURING = _fork_safe.Lock()


class Bench:
    """Memory of the framework's pool, in order of the caller's stream. Raises what the pool raises, and DriverError.

    ``start``: the first of `nbytes` bytes for what is timed, full of finite numbers in every type. To be closed.
    """

    def __init__(self, memory: Memory, device: Device, nbytes: int) -> None:
        self._memory, self._device, self._stream = memory, device, memory.stream()
        self._block = block(memory, FLUSHED + nbytes)
        self.start = self._block.pointer + FLUSHED
        self._fill(self._block.pointer, self._block.nbytes)
        # One launch, for some tens of microseconds of work: meanwhile the host enqueues what is timed.
        with apart(device, memory.index) as stream:
            self._flush = device.capture(stream, lambda: self._flushes(stream))

    def close(self) -> None:
        self._device.destroy(self._flush)

    def _flushes(self, stream: int) -> None:
        part, start = FLUSHED // _PARTS, self._block.pointer
        for i in range(1, _PARTS):
            self._device.copy(start, start + i * part, part, stream)

    def _fill(self, start: int, nbytes: int) -> None:
        sample = self._memory.upload(_numbers(min(_FILLED, nbytes)))
        done = min(_FILLED, nbytes)
        self._device.copy(start, self._memory.pointer(sample), done, self._stream)
        while done < nbytes:
            more = min(done, nbytes - done)
            self._device.copy(start + done, start, more, self._stream)
            done += more

    def record(self, work: Callable[[int], None]) -> int:
        """A graph of what `work` enqueues on the stream that it is given, which has run once before."""
        work(self._stream)  # a library loads its code at the first run
        with apart(self._device, self._memory.index) as stream:
            return self._device.capture(stream, lambda: work(stream))

    def seconds(self, graphs: Sequence[int], until: float) -> list[float]:
        """The shortest time that each took; of few, where it takes much longer than another.

        Other work of the stream may have to be waited for. `until`: when to stop, by `time.monotonic`; what was not
        timed by then is infinite.
        """
        found = [math.inf] * len(graphs)
        for number in range(_FIRST + _MORE):
            limit = math.inf if number < _FIRST else _NEAR * min(found)
            for i, graph in enumerate(graphs):
                if monotonic() >= until:
                    return found
                if found[i] <= limit or not i:
                    found[i] = min(found[i], self._once(graph))
        return found

    def _once(self, graph: int) -> float:
        self._device.launch(self._flush, self._stream)
        return self._device.timed(self._stream, lambda: self._device.launch(graph, self._stream))


def rounded(nbytes: int) -> int:
    """So that what lies behind it is aligned too."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _numbers(nbytes: int) -> Any:
    """Float16 of 0.25 to 2, of both signs; they make finite numbers of float32, bfloat16 and float64 as well."""
    import numpy as np

    random: Any = np.random.default_rng(0)
    bits = random.integers(0x3400, 0x4000, -(-nbytes // 2), np.uint16)
    bits |= random.integers(0, 2, bits.size, np.uint16) << np.uint16(15)
    return bits.view(np.uint8)
