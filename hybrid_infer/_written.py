"""Tensors of a call that a method writes to: what they hold afterwards is computed, and copied into them after the run.

A method that fills a cache of a fixed size (``keys[:, :, position] = ...``, ``keys.index_copy_(...)``) is traced on a
copy of each such tensor. The copy's last content is a result, beside the changed objects (see `_given`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Any

from hybrid_infer._given import Returned
from hybrid_infer._structure import class_path

_RETURNED = class_path(Returned)


def targets(results: Sequence[Any]) -> list[int]:
    """Which leaves of a tree of results are tensors that are written to, where the call has them."""
    if not results or results[0] in ("t", "i", "c", "g", "a") or results[1] != _RETURNED:
        return []
    value, changes = results[-1]
    place, found = _leaves(value), []
    for change in changes[-1]:
        _, gone, _ = change[-1]
        if gone[:2] == ["c", "NoneType"]:
            found.append(place)
        place += _leaves(change)
    return found


def _leaves(node: Any) -> int:
    if node[0] in ("t", "i"):
        return 1
    return 0 if node[0] in ("c", "g", "a") else sum(map(_leaves, node[-1]))


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
        """Does each tensor that is written to lie in memory of its own, of all tensors of the call?

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
