"""CUDA C for products of matrices in half precision, by a GPU's matrix units: tiles of three sizes.

A block computes a tile of the result. Slices of both operands go through shared memory, several of them on their way
while one is multiplied; a warp multiplies its part of the tile, with sums in float32 registers. The sums of the whole
tile then lie in shared memory once, from where bias, addend and activation are applied and whole lines are stored.

Large tiles read the least for each product; small ones leave fewer multiprocessors idle where the result is small. In
small ones two warps share a part of the tile, each with half of every slice, so that a multiprocessor that has but one
block has warps enough to hide latencies; their sums are added in a fixed order.
"""

from __future__ import annotations

from typing import NamedTuple

from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration
from hybrid_infer.backends.native._cuda_batch import offsets
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._cuda_product import Product, epilogue, product_of
from hybrid_infer.backends.native._cuda_tensor_cores import LEAST_SHARED, TYPES, WORD, whole_head
from hybrid_infer.backends.native._cuda_tilings import Tiling, kept
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, product


class Tile(NamedTuple):
    """Rows and columns of a tile, depth of a slice, warps each way and in its depth, slices in flight and in use,
    blocks that a multiprocessor shall hold at once, and the cost (see `Tiling`).

    The costs are estimates for one multiprocessor of an H100: the larger of the time to load a slice of each operand
    from the L2 cache and of the time to multiply them, for equal depths.
    """

    height: int
    width: int
    depth: int
    down: int
    across: int
    along: int
    stages: int
    blocks: int
    cost: int

    @property
    def threads(self) -> int:
        return 32 * self.down * self.across * self.along


TILES = (
    Tile(128, 128, 32, 2, 4, 1, 4, 2, 13), Tile(64, 64, 64, 2, 2, 2, 4, 2, 4), Tile(32, 32, 128, 2, 2, 2, 4, 3, 2),
)  # fmt: skip

#: Between lines of sums, floats: four lines of a fragment then lie in different banks.
_APART = 8


def gemm_tiles(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a ``gemm`` or ``matmul`` step of half precision; None for another, or of unknown shapes."""
    made = product_of(plan, step)
    if made is None or made.types[0] not in TYPES or len(set(made.types)) > 1:
        return None
    dtype, reach = made.types[0], Access([1], [])
    body = _body(made, step, reach)
    parameters = declaration(made.types, 1, reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(made.types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    template = "int HEIGHT, int WIDTH, int DEPTH, int DOWN, int ACROSS, int ALONG, int STAGES"
    text = "\n".join([f"template <{template}> __device__ inline void {name}_body({parameters}) {{", *body, "}"])
    named = {f"{name}_t{tile.height}": tile for tile in TILES}
    tilings = kept([
        Tiling(entry, made.tiles(tile.height, tile.width)[2], tile.threads, _shared(step, tile, BYTES[dtype]),
               tile.cost, tile.cost)
        for entry, tile in named.items()
    ], LEAST_SHARED)  # fmt: skip
    for entry, tile in ((each.entry, named[each.entry]) for each in tilings):
        text += (
            f'\nextern "C" __global__ void __launch_bounds__({tile.threads}, {tile.blocks}) {entry}({parameters}) '
            f"{{ {name}_body<{', '.join(map(str, tile[:7]))}>({passed}); }}"
        )
    source = whole_head(text, dtype) + "\n" + text + "\n"
    sizes = " or ".join(f"{named[each.entry].height}x{named[each.entry].width}" for each in tilings)
    choice = ", whichever leaves fewer multiprocessors idle" if len(tilings) > 1 else ""
    return Kernel(
        source, {}, made.types, reach.numbers, made.elements, 1, blocks=True, tilings=tilings,
        what=f"its own kernel multiplies on matrix units, in tiles of {sizes}{choice}, where no library does",
    )  # fmt: skip


def _shared(step: Step, tile: Tile, size: int) -> int:
    """Bytes of shared memory: slices of both operands, or in their place the sums of the tile."""
    left, right = (tile.height, tile.depth), (tile.depth, tile.width)
    lines = [pair[::-1] if step.attributes[key] else pair for pair, key in ((left, "trans_a"), (right, "trans_b"))]
    slices = tile.stages * sum(count * (length + WORD) for count, length in lines) * size
    return max(slices, tile.height * (tile.width + _APART) * 4)


def _vectors(length: Dim) -> int:
    """How many elements of a line a thread stores at a time."""
    return next(v for v in (WORD, 4, 2, 1) if v == 1 or (isinstance(length, int) and length % v == 0))


def _whole(reach: Access, length: Dim) -> str:
    """May lines of that length, one behind the other, be copied 16 bytes at a time? The first is aligned."""
    if isinstance(length, int):
        return "true" if length % WORD == 0 else "false"
    return f"{reach.term(length)} % {WORD} == 0"


def _body(made: Product, step: Step, reach: Access) -> list[str]:
    at, term, c = step.attributes, reach.term, STORED[made.types[0]]
    turned_a, turned_b = ("true" if at[key] else "false" for key in ("trans_a", "trans_b"))
    down, across, _ = made.tiles(1, 1)
    v, last = _vectors(made.columns), len(made.types) - 1
    a_line, b_line = made.a_step[1 if at["trans_a"] else 0], made.b_step[1 if at["trans_b"] else 0]
    a_whole = _whole(reach, made.rows if at["trans_a"] else made.depth)
    b_whole = _whole(reach, made.depth if at["trans_b"] else made.columns)
    bias, addend = at.get("bias"), at.get("addend")
    lines = f"""
  typedef {c} T;
  typedef long long I;
  constexpr bool TURNED_A = {turned_a}, TURNED_B = {turned_b};
  constexpr int PARTS = DOWN * ACROSS, THREADS = 32 * PARTS * ALONG, V = {v};
  constexpr int HIGH = HEIGHT / DOWN, WIDE = WIDTH / ACROSS;
  constexpr int A_LINES = TURNED_A ? DEPTH : HEIGHT, A_LENGTH = TURNED_A ? HEIGHT : DEPTH, A_PITCH = A_LENGTH + {WORD};
  constexpr int B_LINES = TURNED_B ? WIDTH : DEPTH, B_LENGTH = TURNED_B ? DEPTH : WIDTH, B_PITCH = B_LENGTH + {WORD};
  constexpr int STAGE = A_LINES * A_PITCH + B_LINES * B_PITCH, PITCH = WIDTH + {_APART};
  extern __shared__ __align__(16) unsigned char hi_shared[];
  T* const stages = (T*)hi_shared;
  float* const sums = (float*)hi_shared;
  const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
  const int part = warp % PARTS, share = warp / PARTS, top = part / ACROSS * HIGH, left = part % ACROSS * WIDE;
  const I rows = {term(down)}, columns = {term(across)}, depth = {term(made.depth)};
  const I a_line = {term(a_line)}, b_line = {term(b_line)};
  // Of tiles there are fewer than 2^31 where their elements fit into any memory.
  const int down = (int)((rows + HEIGHT - 1) / HEIGHT), across = (int)((columns + WIDTH - 1) / WIDTH);
  const int tiles = down * across * (int)({term(product(made.batch))});
  const int steps = (int)((depth + DEPTH - 1) / DEPTH);
  for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {{
    const I row0 = (I)(tile / across % down) * HEIGHT, column0 = (I)(tile % across) * WIDTH;
    OFFSETS
    const int high = (int)(rows - row0 < HEIGHT ? rows - row0 : HEIGHT);
    const int wide = (int)(columns - column0 < WIDTH ? columns - column0 : WIDTH);
    const T* const a = p0 + a0 + row0 * (TURNED_A ? 1 : a_line);
    const T* const b = p1 + b0 + column0 * (TURNED_B ? b_line : 1);
    auto fetch = [&](int step) {{
      const I from = (I)step * DEPTH;
      const int deep = (int)(depth - from < DEPTH ? depth - from : DEPTH);
      T* const to = stages + step % STAGES * STAGE;
      hi_tile<T, A_LINES, A_LENGTH, THREADS>(to, a + from * (TURNED_A ? a_line : 1), a_line, TURNED_A ? deep : high,
                                             TURNED_A ? high : deep, {a_whole});
      hi_tile<T, B_LINES, B_LENGTH, THREADS>(to + A_LINES * A_PITCH, b + from * (TURNED_B ? 1 : b_line), b_line,
                                             TURNED_B ? wide : deep, TURNED_B ? deep : wide, {b_whole});
    }};
#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) {{
      if (step < steps) fetch(step);
      hi_commit();
    }}
    float sum[HIGH / 16][WIDE / 8][4] = {{}};
    for (int step = 0; step < steps; ++step) {{
      // Of the groups committed, all but the newest STAGES - 2 are there: those up to this step. Beyond the barrier
      // they are there for every thread, and all have read what is overwritten next: the slice of the step before.
      hi_wait<STAGES - 2>();
      __syncthreads();
      if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
      hi_commit();
      const T* const x = stages + step % STAGES * STAGE;
      const T* const y = x + A_LINES * A_PITCH;
#pragma unroll
      for (int first = 0; first < DEPTH; first += 16 * ALONG) {{
        const int k = first + share * 16;
        unsigned one[HIGH / 16][4], two[WIDE / 16][4];
#pragma unroll
        for (int i = 0; i < HIGH / 16; ++i) hi_left<TURNED_A, A_PITCH>(one[i], x, top + i * 16, k, lane);
#pragma unroll
        for (int j = 0; j < WIDE / 16; ++j) hi_right<TURNED_B, B_PITCH>(two[j], y, left + j * 16, k, lane);
#pragma unroll
        for (int i = 0; i < HIGH / 16; ++i)
#pragma unroll
          for (int j = 0; j < WIDE / 8; ++j)
            hi_mma<T>(sum[i][j], one[i], two[j / 2][j % 2 * 2], two[j / 2][j % 2 * 2 + 1]);
      }}
    }}
    hi_wait<0>();
    __syncthreads();
#pragma unroll
    for (int turn = 0; turn < ALONG; ++turn) {{
      if (turn == share)
#pragma unroll
        for (int i = 0; i < HIGH / 16; ++i)
#pragma unroll
          for (int j = 0; j < WIDE / 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {{
              const int row = top + i * 16 + lane / 4 + h * 8, column = left + j * 8 + lane % 4 * 2;
              Pack<float, 2>* const at = (Pack<float, 2>*)(sums + row * PITCH + column);
              const Pack<float, 2> before = turn ? *at : Pack<float, 2>{{{{0.0f, 0.0f}}}};
              *at = {{{{before.v[0] + sum[i][j][2 * h], before.v[1] + sum[i][j][2 * h + 1]}}}};
            }}
      __syncthreads();
    }}
    for (int e = (int)threadIdx.x; e < HEIGHT * (WIDTH / V); e += THREADS) {{
      const int i = e / (WIDTH / V), j = e % (WIDTH / V) * V;
      if (i >= high || j >= wide) continue;
      const I column = column0 + j, place = y0 + (row0 + i) * {term(made.y_step)} + column;
      BIAS
      ADDEND
      float found[V];
#pragma unroll
      for (int l = 0; l < V; ++l) {{
        float total = sums[i * PITCH + j + l];
        EPILOGUE
        found[l] = total;
      }}
      hi_store(p{last} + place, found);
    }}
    __syncthreads();
  }}"""
    inner = {
        "OFFSETS": offsets(reach, made.batch, "tile / across / down", made.places),
        "BIAS": [] if bias is None else [f"const Pack<T, V> bias = *(const Pack<T, V>*)(p{bias} + column);"],
        "ADDEND": [] if addend is None else [f"const Pack<T, V> addend = *(const Pack<T, V>*)(p{addend} + place);"],
        "EPILOGUE": epilogue(step, made.types[0], "hi_load(bias.v[l])", "hi_load(addend.v[l])"),
    }
    found = []
    for line in lines.strip("\n").splitlines():
        key = line.strip()
        found += [line.replace(key, each) for each in inner[key]] if key in inner else [line]
    return found
