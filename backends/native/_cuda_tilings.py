"""Which of several tilings of a step serves: the one that is through soonest, by the sizes of a call and the GPU.

Tiles are dealt out evenly. A multiprocessor that has but one takes its whole latency; one that has several hides the
latencies of each behind the work of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hybrid_infer.backends.native._size import Dim

#: Multiprocessors of the GPUs that a tiling is kept for: one that would serve on none of them is not compiled.
_GPUS = range(40, 161)

#: Bytes of shared memory that a block may have at most, on one GPU or another: code that was compiled for one of a
#: generation runs on others of it, which may have less.
_SHARED = (48 << 10, 64 << 10, 99 << 10, 163 << 10, 227 << 10)


class Tiling(NamedTuple):
    """One of several ways to compute a step, which differ in the tile of a block: their number says which serves.

    ``rows``: tiles. ``cost``: the time that a tile adds where a multiprocessor has many, ``alone`` that of one where it
    has no other, both beside those of the other tilings: estimates, in no unit. ``narrow``: its indices are of 32 bits,
    which not every space can be counted in. ``blocks``: those of a cluster, which run together.
    """

    entry: str
    rows: Dim
    threads: int
    shared: int
    cost: int
    alone: int
    narrow: bool = False
    blocks: int = 1

    def time(self, tiles: int, multiprocessors: int) -> int:
        """The estimate for so many tiles."""
        return max(-(-tiles // multiprocessors) * self.cost, self.alone) if tiles else 0


def kept(tilings: Sequence[Tiling], least: int = 0) -> list[Tiling]:
    """Those that may be the best on some GPU, as far as sizes are known.

    `least`: bytes of shared memory that a block may have on every GPU in question.
    """
    counts = [each.rows for each in tilings if isinstance(each.rows, int)]
    if len(counts) < len(tilings):
        return list(tilings)
    found = set()
    for shared in (each for each in _SHARED if each >= least):
        fitting = [i for i, each in enumerate(tilings) if each.shared <= shared]
        for multiprocessors in _GPUS if fitting else ():
            found.add(min(fitting, key=lambda i: tilings[i].time(counts[i], multiprocessors)))
    return [each for i, each in enumerate(tilings) if i in found]
