"""Tensors that a method writes to: what they hold afterwards is computed, and copied into them after the run.

A method that fills a cache of a fixed size (``keys[:, :, position] = ...``, ``keys.index_copy_(...)``) is traced on a
copy of each such tensor. The copy's last content is a result, beside the changed objects (see `_given`). The tensor is
an argument, or state: one that the layer holds. State is an input of the graph, read anew at each call, behind the
arguments: the *tensors that a call works on* are those of the call, then its state.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Any

from hybrid_infer._busy import NOTHING
from hybrid_infer.state import _given

#: Why a call is answered eagerly whose `Turn` gave nothing.
RESTLESS = "another thread writes to a tensor that it writes to"


class Others:
    """Weights and constants, which no tensor that is written to may lie in: a write would change them too."""

    def __init__(self, frontend: Any, tensors: Collection[Any]) -> None:
        self._extent, self._axes = frontend.extent, frontend.axes
        spans = sorted(filter(_some, map(self._extent, tensors)))
        self._starts = [start for start, _ in spans]
        ends: list[int] = []
        for _, end in spans:
            ends.append(max(end, ends[-1]) if ends else end)
        self._ends = ends

    def apart(self, tensors: Sequence[Any], written: Collection[int]) -> bool:
        """Does each tensor that is written to lie in memory of its own, of all tensors that a call works on?

        One of which several elements lie in one place, such as an expanded one, is another one of itself.
        """
        if any(folded(self._axes(tensors[i])) for i in written):
            return False
        spans = [(*self._extent(tensor), i in written) for i, tensor in enumerate(tensors)]
        for start, end, writes in spans:
            if writes and end > start:
                below = bisect_left(self._starts, end)  # of those that begin before it ends
                if below and self._ends[below - 1] > start:
                    return False
        high, highest_written = 0, 0  # where those before end, and where those do that are written to
        for start, end, writes in sorted(filter(_some, spans)):
            if start < highest_written or (writes and start < high):
                return False
            high = max(high, end)
            if writes:
                highest_written = max(highest_written, end)
        return True


def folded(axes: Sequence[tuple[int, int]]) -> bool:
    """May two elements of a tensor lie in one place? `axes`: sizes and strides."""
    reach = 0
    for stride, size in sorted((abs(stride), size) for size, stride in axes if size != 1):
        if size and stride <= reach:
            return all(size for size, _ in axes)
        reach += stride * (size - 1)
    return False


def _some(span: Sequence[int]) -> bool:
    return span[1] > span[0]


class Turn:
    """A run that ends with writes, which put back all of a tensor as the run has read it, and what is new.

    Other threads may write to other parts of the tensor meanwhile, each to its own, as they may eagerly. Their writes
    would be lost: a run during which somebody wrote to the same memory is made again, while nobody else's may write.
    """

    _changed = threading.Condition()  # guards the two below
    _open: list[Turn] = []  # noqa: RUF012  # of all threads: runs that read or write
    _alone: list[Turn] = []  # noqa: RUF012  # those of them beside which no run of the same memory reads or writes

    def __init__(
        self, frontend: Any, tensors: Sequence[Any], assign: Callable[[int, Any], Any] | None = None
    ) -> None:
        self._frontend, self._tensors, self._assign = frontend, tensors, assign
        self._spans = [*map(frontend.extent, tensors)]
        self._disturbed = self._wrote = False
        self._stamps: list[Any] = []

    @classmethod
    def renew_after_fork(cls) -> None:
        cls._changed, cls._open, cls._alone = threading.Condition(), [], []

    def take(self, run: Callable[[], Any]) -> Any:
        """The result of a run whose writes are done, `Failed` where they cannot be; NOTHING if the memory never rests.

        What `run` raises is raised, and nothing is written then.
        """
        with self._changed:
            self._changed.wait_for(self._free)
            self._open.append(self)
        try:
            self._stamps = self._now()
            found = run()
            with self._changed:
                self._changed.wait_for(self._free)
                self._alone.append(self)
            if not self._rested():
                self._disturbed, self._stamps = False, self._now()
                found = run()
                if not self._rested():
                    return NOTHING
            return self.written(found)
        finally:
            with self._changed:
                self._open.remove(self)
                if self in self._alone:
                    self._alone.remove(self)
                for other in self._open if self._wrote else ():
                    other._disturbed |= self._meets(other)
                self._changed.notify_all()

    def _free(self) -> bool:
        return not any(map(self._meets, self._alone))

    def _meets(self, other: Turn) -> bool:
        return any(a < d and c < b for a, b in self._spans for c, d in other._spans)

    def _now(self) -> list[Any]:
        return [*map(self._frontend.stamp, self._tensors)]

    def _rested(self) -> bool:
        """Has nobody written to the tensors since they were read, neither a run nor, as counters tell, eager code?"""
        return not self._disturbed and self._now() == self._stamps

    def written(self, found: Any) -> Any:
        """The result of a run whose writes are done; `Failed` where they cannot be."""
        self._wrote = True
        try:
            return _given.applied(found, self._frontend.write, self._assign)
        except Exception as fault:
            return Failed(fault)


class Failed:
    """Why tensors cannot be written to, which the program is to hear as of the eager method."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault
