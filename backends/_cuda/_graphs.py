"""Captured CUDA graphs of a program, one per stream and sizes, of which the least recently used goes first.

A graph has its addresses in it. So each keeps buffers of its own: arguments are copied into them and results out of
them, on the caller's stream, which is worth it only where the copies are small beside the launches that they save.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from hybrid_infer import _fork_safe
from hybrid_infer.backends._cuda._driver import Driver, DriverError

_log = logging.getLogger("hybrid_infer")

#: Graphs that a program keeps, each with its buffers.
MOST = 8
#: Calls of one size after which it is captured: a size that is met once is not worth it.
AFTER = 3
#: Bytes of arguments and results together up to which copying them is cheaper than launching kernels one by one.
LARGEST = 1 << 22

#: How often what failed is tried, and the calls in between: a thread that waits for the whole GPU spoils a capture.
_TRIES, _AGAIN = 3, 100

#: How often the calls are doubled after which a size is captured again, whose graph had to give way.
_DOUBLED = 10


class Buffer(NamedTuple):
    """A place that a graph reads or writes; ``owner`` keeps it."""

    pointer: int
    nbytes: int
    owner: Any


class Captured:
    """A graph with its buffers. Its launches wait for each other, since they share them.

    ``note``: what whoever captured it wants to find again.
    """

    def __init__(
        self, driver: Driver, graph: int, inputs: Sequence[Buffer], outputs: Sequence[Buffer], kept: object,
        note: Any = None,
    ) -> None:  # fmt: skip
        self.note = note
        self._driver, self._graph, self._inputs, self._outputs = driver, graph, inputs, outputs
        self._kept = kept  # the execution context and its memory
        self._lock = _fork_safe.Lock()
        self._closed = False
        self._event = 0
        #: What its buffers take.
        self.nbytes = sum(each.nbytes for each in (*inputs, *outputs))

    def run(self, inputs: Sequence[int], outputs: Sequence[int], stream: int) -> bool:
        """Enqueue one run from and to these addresses; False where another thread has closed it. Raises DriverError."""
        with self._lock:
            if self._closed:
                return False
            for buffer, pointer in zip(self._inputs, inputs, strict=True):
                if buffer.nbytes:
                    self._driver.copy(buffer.pointer, pointer, buffer.nbytes, stream)
            self._driver.launch(self._graph, stream)
            for buffer, pointer in zip(self._outputs, outputs, strict=True):
                if buffer.nbytes:
                    self._driver.copy(pointer, buffer.pointer, buffer.nbytes, stream)
            self._enqueued(stream)
        return True

    def close(self) -> None:
        """Let go, of what is kept for it too. Raises DriverError."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._settle()
            finally:
                with self._driver.relaxed():
                    self._driver.destroy(self._graph)
                    self._kept = None

    def _enqueued(self, stream: int) -> None:
        """Note where its last run ends: what is kept for it may be destroyed no earlier."""
        self._event = self._event or self._driver.event()
        self._driver.record(self._event, stream)

    def _settle(self) -> None:
        """Wait for its runs, and for no others: to wait for all of a GPU spoils whatever is captured there."""
        if self._event:
            self._driver.settle(self._event)


class Graphs:
    """The graphs of one program of the engine `name`, by stream and sizes.

    ``room``: bytes that the buffers of all take together, beside which only one that takes more by itself is kept.
    """

    def __init__(self, name: str, most: int = MOST, after: int = AFTER, room: float = math.inf) -> None:
        self._name, self._most, self._after, self._room = name, most, after, room
        self._lock = _fork_safe.Lock()
        self._found: OrderedDict[Hashable, Captured] = OrderedDict()
        self._met: OrderedDict[Hashable, int] = OrderedDict()
        self._made: OrderedDict[Hashable, int] = OrderedDict()  # how often each was captured
        self._failed: dict[Hashable, int] = {}
        self._making = self._closed = False

    def get(self, key: Hashable) -> Captured | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def due(self, key: Hashable) -> bool:
        """Note one run of `key`: is it time to capture it? True for one thread at a time, which then calls `add`."""
        with self._lock:
            failed = self._failed.get(key, 0)
            if failed >= _TRIES or key in self._found or self._making:
                return False
            count = self._met.get(key, 0) + 1
            self._met[key] = count
            self._met.move_to_end(key)
            if len(self._met) > 16 * self._most:
                self._met.popitem(last=False)
            after = self._after << min(self._made.get(key, 0), _DOUBLED)
            self._making = count >= (_AGAIN if failed else after)
            return self._making

    def add(self, key: Hashable, make: Callable[[], Captured | None], nbytes: int = 0) -> Captured | None:
        """Capture. What `make` raises is said, and `key` tried again some calls later; where it gives None, never.

        `nbytes`: what its buffers will take. Those of graphs that give way for them go first.
        """
        captured, failed = None, 1
        with self._lock:
            evicted = self._beyond(self._room - nbytes)
        self._let_go(evicted)
        try:
            captured = make()
            failed = _TRIES
        except Exception as error:
            _log.info("%s: not captured as a CUDA graph: %s", self._name, error)
        finally:
            with self._lock:
                self._making = False
                self._met.pop(key, None)
                evicted = []
                if captured is None:
                    self._failed[key] = self._failed.get(key, 0) + failed
                elif self._closed:  # while it was made
                    evicted.append(captured)
                else:
                    self._found[key] = captured
                    self._made[key] = self._made.pop(key, 0) + 1
                    if len(self._made) > 16 * self._most:
                        self._made.popitem(last=False)
                    while len(self._found) > self._most:
                        evicted.append(self._found.popitem(last=False)[1])
            self._let_go(evicted)
        return captured

    def _beyond(self, room: float) -> list[Captured]:
        """Those that were used least recently, until the others fit into so many bytes."""
        gone = []
        while self._found and sum(each.nbytes for each in self._found.values()) > room:
            gone.append(self._found.popitem(last=False)[1])
        return gone

    def drop(self, key: Hashable, error: Exception) -> None:
        """Let go of a graph that does not run, and capture `key` no more."""
        _log.info("%s: a CUDA graph is not launched any more: %s", self._name, error)
        with self._lock:
            self._failed[key] = _TRIES
            gone = [found] if (found := self._found.pop(key, None)) is not None else []
        self._let_go(gone)

    def clear(self) -> None:
        """Let go of all graphs; what comes again is captured again."""
        with self._lock:
            found = list(self._found.values())
            self._found.clear()
        self._let_go(found)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            found = list(self._found.values())
            self._found.clear()
        self._let_go(found)

    def _let_go(self, gone: Sequence[Captured]) -> None:
        for each in gone:
            try:
                each.close()
            except DriverError as error:  # the others go all the same
                _log.debug("%s: a CUDA graph was not let go: %s", self._name, error)
