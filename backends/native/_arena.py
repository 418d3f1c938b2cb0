"""Scratch memory: one block for each stream of a device, which all programs that are called there share.

On one stream calls follow each other, those of other programs among them, so that twelve equal blocks of a model need
no more than one; on two streams they may overlap. A block comes from the framework's pool, which has it back in the
order of its stream when the last program that used it is gone.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable

from hybrid_infer import _fork_safe
from hybrid_infer._types import Memory
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda._memory import Block, block
from hybrid_infer.backends.native._bound import Bound

#: Streams of which a program keeps the block, and sizes for which it keeps packed arguments on each.
_STREAMS, _SIZES = 4, 32

#: The handle under which each thread has a default stream of its own: CU_STREAM_PER_THREAD.
_PER_THREAD = 2


class Arena:
    """A block. Hold ``lock`` while work is enqueued on it. ``turn`` moves with each other block."""

    def __init__(self) -> None:
        self.lock = _fork_safe.Lock()
        self.block: Block | None = None
        self.turn = 0

    def fit(self, memory: Memory, nbytes: int) -> Block:
        """The block, which is made larger where it is too small; a graph that was captured on the old one keeps it."""
        if self.block is None or self.block.nbytes < nbytes:
            self.let_go()  # the pool has it back before more is asked for: both would count as in use
            self.block = block(memory, nbytes)
        return self.block

    def let_go(self) -> None:
        self.block = None
        self.turn += 1


class Lane:
    """A program's use of an arena, whose block it does not hold: what it has bound to it."""

    def __init__(self, arena: Arena) -> None:
        self._arena, self.lock = arena, arena.lock
        self._turn = arena.turn
        self._bound: OrderedDict[Hashable, Bound] = OrderedDict()

    @property
    def block(self) -> Block | None:
        return self._arena.block

    def fit(self, memory: Memory, nbytes: int) -> Block:
        """The arena's block; where it is another one than before, what was bound is forgotten."""
        found = self._arena.fit(memory, nbytes)
        if self._turn != self._arena.turn:
            self._bound.clear()
            self._turn = self._arena.turn
        return found

    def let_go(self) -> None:
        """Of the block, for all who share it: whoever comes next has another one made."""
        with self.lock:
            self._arena.let_go()

    def bound(self, key: Hashable, make: Callable[[], Bound]) -> Bound:
        found = self._bound.get(key)
        if found is None:
            found = self._bound[key] = make()
            if len(self._bound) > _SIZES:
                self._bound.popitem(last=False)
        self._bound.move_to_end(key)
        return found

    def nbytes(self) -> int:
        held = self._arena.block
        return 0 if held is None else held.nbytes


_sharing = _fork_safe.Lock()
_shared: weakref.WeakValueDictionary[Hashable, Arena] = weakref.WeakValueDictionary()


def _enter_child() -> None:
    global _shared
    _shared = weakref.WeakValueDictionary()


_fork.in_child(_enter_child)


def place(stream: int) -> Hashable:
    """What tells the stream of that handle from others, as the calling thread has it."""
    return (stream, threading.get_ident()) if stream == _PER_THREAD else stream


class Arenas:
    """The lanes of one program, by stream; the least recently used one goes first. ``pool``: of whose memory."""

    def __init__(self, memory: Memory) -> None:
        self._pool = (type(memory), memory.device)
        self._lock = _fork_safe.Lock()
        self._found: OrderedDict[Hashable, Lane] = OrderedDict()

    def on(self, stream: int) -> Lane:
        here = place(stream)
        with self._lock:
            found = self._found.get(here)
            if found is None:
                with _sharing:
                    arena = _shared.get((self._pool, here))
                    if arena is None:
                        arena = _shared[self._pool, here] = Arena()
                found = self._found[here] = Lane(arena)
                if len(self._found) > _STREAMS:
                    self._found.popitem(last=False)
            self._found.move_to_end(here)
            return found

    def nbytes(self) -> int:
        """Bytes of all blocks."""
        with self._lock:
            return sum(each.nbytes() for each in self._found.values())

    def let_go(self) -> None:
        """Of all blocks, which other programs share."""
        with self._lock:
            found = list(self._found.values())
        for each in found:
            each.let_go()

    def clear(self) -> None:
        with self._lock:
            self._found.clear()
