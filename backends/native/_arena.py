"""Scratch memory of a program, one block for each stream that it is called on, out of the framework's pool.

On one stream calls follow each other, so that they can share a block; on two they may overlap. A block goes back to the
pool in the order of its stream.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from hybrid_infer._types import Memory
from hybrid_infer.backends._cuda._memory import Block, block
from hybrid_infer.backends.native._bound import Bound

#: Streams of which a program keeps a block, and sizes for which it keeps packed arguments on each.
_STREAMS, _SIZES = 4, 32


class Arena:
    """A block and what is bound to it. Hold ``lock`` while work is enqueued on it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.block: Block | None = None
        self._bound: OrderedDict[Hashable, Bound] = OrderedDict()

    def fit(self, memory: Memory, nbytes: int) -> Block:
        """The block, which is made larger where it is too small: then what was bound to the old one is forgotten."""
        if self.block is None or self.block.nbytes < nbytes:
            self._bound.clear()
            self.block = None  # the pool has it back before more is asked for
            self.block = block(memory, nbytes)
        return self.block

    def bound(self, key: Hashable, make: Callable[[], Bound]) -> Bound:
        found = self._bound.get(key)
        if found is None:
            found = self._bound[key] = make()
            if len(self._bound) > _SIZES:
                self._bound.popitem(last=False)
        self._bound.move_to_end(key)
        return found


class Arenas:
    """By stream; the least recently used one goes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[int, Arena] = OrderedDict()

    def on(self, stream: int) -> Arena:
        with self._lock:
            found = self._found.get(stream)
            if found is None:
                found = self._found[stream] = Arena()
                if len(self._found) > _STREAMS:
                    self._found.popitem(last=False)
            self._found.move_to_end(stream)
            return found

    def nbytes(self) -> int:
        """Bytes of all blocks."""
        with self._lock:
            return sum(each.block.nbytes for each in self._found.values() if each.block is not None)

    def clear(self) -> None:
        with self._lock:
            self._found.clear()
