"""How many blocks and threads a kernel is launched with, and which of its entry points, for the sizes of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hybrid_infer.backends.native import _size
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_elementwise import THREADS
from hybrid_infer.backends.native._cuda_rows import THREADS as MOST_THREADS
from hybrid_infer.backends.native._device import Properties
from hybrid_infer.backends.native._plan import refuse
from hybrid_infer.backends.native._size import Atom

_WARP = 32

#: Blocks for each multiprocessor, at most: kernels stride over what is left. Clusters stay whole: it is a multiple of
#: the blocks that one has.
_WAVES = 32


class Geometry(NamedTuple):
    """``entry`` is a name; ``grid`` is 0 where there is nothing to do; ``cached``: does shared memory hold a row?

    ``together``: blocks of a cluster.
    """

    entry: str
    grid: int
    block: int
    shared: int
    cached: bool
    together: int = 1


def geometry(kernel: Kernel, symbols: Mapping[Atom, int], gpu: Properties) -> Geometry:
    """Raises EngineError where a block would need more shared memory than it can have."""
    if kernel.tilings:
        return _tiled(kernel, symbols, gpu)
    count, rows, width = (_size.evaluate(each, symbols) for each in (kernel.count, kernel.rows, kernel.width))
    key = kernel.entry(symbols)
    lanes = key[0]
    shared, cached = kernel.shared, False
    if kernel.each:
        whole = shared + kernel.each * width
        cached = kernel.cached and whole <= gpu.shared
        if not kernel.cached and whole > gpu.shared:
            raise refuse(f"needs {whole} bytes of shared memory for a row of {width}, and {gpu.shared} can be had")
        if cached or not kernel.cached:
            shared = whole
    if kernel.blocks:
        block = kernel.threads or min(max(-(-width // lanes // _WARP) * _WARP, _WARP), MOST_THREADS)
        grid = rows
    else:
        block = THREADS
        items = rows if kernel.rows != 1 else max(count, 1)  # of nothing, a sum is still written
        grid = -(-items // (lanes * block))
    return Geometry(kernel.entries[key], min(grid, gpu.multiprocessors * _WAVES), block, shared, cached)


def _tiled(kernel: Kernel, symbols: Mapping[Atom, int], gpu: Properties) -> Geometry:
    """By the tiling that is through soonest of those that fit; of equals, the first."""
    best, least = None, 0
    fitting = [each for each in kernel.tilings if not each.narrow] if kernel.wide(symbols) else kernel.tilings
    for each in fitting:
        tiles = _size.evaluate(each.rows, symbols)
        time = each.time(tiles, gpu.multiprocessors)
        if each.shared <= gpu.shared and (best is None or time < least):
            best, least = Geometry(each.entry, tiles, each.threads, each.shared, False, each.blocks), time
    if best is None:
        wanted = min(each.shared for each in kernel.tilings)
        raise refuse(f"needs {wanted} bytes of shared memory for a tile, and {gpu.shared} can be had")
    return best._replace(grid=min(best.grid, gpu.multiprocessors * _WAVES))
