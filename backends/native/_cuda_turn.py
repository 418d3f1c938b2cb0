"""CUDA C for turns of the last axis: tiles go through shared memory, so that reads and writes both lie side by side."""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_box import Box
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, Size, product

#: Threads of a block, and bytes side by side of what a tile reads and writes: a line of the cache, and half of one, so
#: that there are more tiles.
THREADS, LINE, HALF = 256, 128, 64

#: Bytes of a word of a bank of shared memory.
_WORD = 4


def turn(plan: Plan, step: Step, name: str, box: Box) -> Kernel:
    """The kernel of a copy in which the last axis changes (see `Box.crossed`). A block has a tile at a time."""
    across = box.crossed()
    assert across is not None
    types = [plan.values[step.inputs[0]].dtype, plan.values[step.outputs[0]].dtype]
    reach, kind = Access([1], []), STORED[types[0]]
    last = len(box.sizes) - 1
    a, b = box.sizes[across], box.sizes[last]
    nbytes = BYTES[types[0]]
    wide, high = _tile(a, b, nbytes)
    # Neighbours down the tile, and those of the next columns that a warp reads at once, lie in other banks.
    pitch = wide + max(_WORD // nbytes, 1) * max(min(32, 128 // nbytes) // high, 1)
    down, along = _parts(b, high), _parts(a, wide)
    others = [axis for axis in range(last) if axis != across]
    tiles = product([down, along, *(box.sizes[axis] for axis in others)])
    term = reach.term
    lines = [
        "extern __shared__ __align__(16) unsigned char hi_shared[];",
        f"constexpr int WIDE = {wide}, HIGH = {high}, PITCH = {pitch}, EACH = {-(-wide * high // THREADS)};",
        f"{kind}* tile = ({kind}*)hi_shared;",
        f"const I a = {term(a)}, b = {term(b)}, tiles = {term(tiles)};",
        "for (I at = blockIdx.x; at < tiles; at += gridDim.x) {",
        "  I rest = at;",
        f"  const I j0 = rest % {term(down)} * HIGH;",
        f"  rest /= {term(down)};",
        f"  const I i0 = rest % {term(along)} * WIDE;",
        f"  rest /= {term(along)};",
        f"  I from = i0 + {term(box.start)}, to = j0 + {term(box.goal)};",
    ]
    lines += box.moved(others, term)
    # All of a thread's loads are under way at once: none waits for what another one puts into the tile.
    lines += [
        f"  {kind} held[EACH];",
        "#pragma unroll",
        "  for (int n = 0; n < EACH; ++n) {",
        f"    const int e = (int)threadIdx.x + n * {THREADS}, i = e % WIDE, j = e / WIDE;",
        "    if (e < WIDE * HIGH && i0 + i < a && j0 + j < b)",
        f"      held[n] = p0[from + i + (j0 + j) * {term(box.read[last])}];",
        "  }",
        "#pragma unroll",
        "  for (int n = 0; n < EACH; ++n) {",
        f"    const int e = (int)threadIdx.x + n * {THREADS}, i = e % WIDE, j = e / WIDE;",
        "    if (e < WIDE * HIGH && i0 + i < a && j0 + j < b) tile[j * PITCH + i] = held[n];",
        "  }",
        "  __syncthreads();",
        "#pragma unroll",
        "  for (int n = 0; n < EACH; ++n) {",
        f"    const int e = (int)threadIdx.x + n * {THREADS}, j = e % HIGH, i = e / HIGH;",
        "    if (e < WIDE * HIGH && i0 + i < a && j0 + j < b)",
        f"      p1[to + j + (i0 + i) * {term(box.written[across])}] = tile[j * PITCH + i];",
        "  }",
        "  __syncthreads();",
        "}",
    ]
    parameters = declaration(types, 1, reach.numbers)
    passed = ", ".join(["p0", "p1", *(f"n{i}" for i in range(len(reach.numbers)))])
    opening = f"template <class I> __device__ inline void {name}_body({parameters}) {{"
    text = "\n".join([opening, *(f"  {line}" for line in lines), "}"])
    whole = plan.values[step.inputs[0]].shape
    count = product(whole or ())
    entries, points = entry_points(name, parameters, passed, indices(count), THREADS)
    return Kernel(
        head(text) + "\n" + text + points + "\n", entries, types, reach.numbers, count, 1, rows=tiles, blocks=True,
        threads=THREADS, shared=high * pitch * nbytes,
    )  # fmt: skip


def _tile(a: Dim, b: Dim, nbytes: int) -> tuple[int, int]:
    """Elements of a tile along the axis that is read and the one that is written.

    Where one of them is short it is taken whole, and more of the other.
    """
    read, written = LINE // nbytes, HALF // nbytes
    axes = ((a, read), (b, written))
    wide, high = (most if isinstance(size, Size) else max(min(size, most), 1) for size, most in axes)
    if wide < read:
        high = read * written // wide if isinstance(b, Size) else min(read * written // wide, b)
    elif high < written:
        wide = read * written // high if isinstance(a, Size) else min(read * written // high, a)
    return wide, max(high, 1)


def _parts(size: Dim, part: int) -> Dim:
    return (size + (part - 1)) // part
