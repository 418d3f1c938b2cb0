"""CUDA C for products of matrices where no library computes them: tiles of 64 by 64, a thread for 4 by 4 of them.

Sums are taken in float32 (float64 for float64); bias, addend and activation are applied before the one rounding.
"""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_batch import offsets
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED
from hybrid_infer.backends.native._cuda_product import epilogue, product_of
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import product

#: Rows and columns of a tile, depth of a slice, elements of a thread each way; threads of a block follow.
TILE, DEPTH, EACH = 64, 16, 4
THREADS = (TILE // EACH) ** 2

#: Elements from one line of a slice to the next: lines then begin in different banks, and vector loads stay aligned.
PITCH = TILE + 4


def gemm(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a ``gemm`` or ``matmul`` step, of `THREADS` threads a block; None where shapes are not known."""
    made = product_of(plan, step)
    if made is None:
        return None
    at, reach = step.attributes, Access([1], [])
    types, dtype, a_step, b_step = made.types, made.types[-1], made.a_step, made.b_step
    c = COMPUTE[inside(dtype)]
    term = reach.term
    tiles_down, tiles_across, tiles = made.tiles(TILE, TILE)
    load_a = f"hi_load(p0[a0 + (row0 + i) * {term(a_step[0])} + (k0 + k) * {term(a_step[1])}])"
    load_b = f"hi_load(p1[b0 + (k0 + k) * {term(b_step[0])} + (column0 + i) * {term(b_step[1])}])"
    # Which index runs fastest over the threads follows what lies side by side in memory.
    a_index = ("e % DEPTH", "e / DEPTH") if a_step[1] == 1 else ("e / TILE", "e % TILE")
    b_index = ("e % DEPTH", "e / DEPTH") if b_step[0] == 1 else ("e / TILE", "e % TILE")
    lines = [
        f"const I rows = {term(made.rows)}, columns = {term(made.columns)}, depth = {term(made.depth)};",
        f"const I down = {term(tiles_down)}, across = {term(tiles_across)};",
        f"const I tiles = down * across * {term(product(made.batch))};",
        f"{c}* left = ({c}*)hi_shared;",
        f"{c}* right = left + DEPTH * PITCH;",
        f"const int u = threadIdx.x / {TILE // EACH}, w = threadIdx.x % {TILE // EACH};",
        "for (I tile = blockIdx.x; tile < tiles; tile += gridDim.x) {",
        "  const I row0 = tile / across % down * TILE, column0 = tile % across * TILE;",
        *(f"  {e}" for e in offsets(reach, made.batch, "tile / across / down", made.places)),
        f"  {c} sum[{EACH}][{EACH}] = {{}};",
        "  for (I k0 = 0; k0 < depth; k0 += DEPTH) {",
        f"    for (int e = threadIdx.x; e < DEPTH * TILE; e += {THREADS}) {{",
        f"      {{ const int k = {a_index[0]}, i = {a_index[1]};",
        f"        left[k * PITCH + i] = row0 + i < rows && k0 + k < depth ? {load_a} : ({c})0; }}",
        f"      {{ const int k = {b_index[0]}, i = {b_index[1]};",
        f"        right[k * PITCH + i] = column0 + i < columns && k0 + k < depth ? {load_b} : ({c})0; }}",
        "    }",
        "    __syncthreads();",
        "    for (int k = 0; k < DEPTH; ++k)",
        "#pragma unroll",
        f"      for (int i = 0; i < {EACH}; ++i)",
        "#pragma unroll",
        f"        for (int j = 0; j < {EACH}; ++j)",
        f"          sum[i][j] += left[k * PITCH + u * {EACH} + i] * right[k * PITCH + w * {EACH} + j];",
        "    __syncthreads();",
        "  }",
        f"  for (int i = 0; i < {EACH}; ++i)",
        f"    for (int j = 0; j < {EACH}; ++j) {{",
        f"      const I row = row0 + u * {EACH} + i, column = column0 + w * {EACH} + j;",
        "      if (row >= rows || column >= columns) continue;",
        f"      const I place = y0 + row * {term(made.y_step)} + column;",
        f"      {c} total = sum[i][j];",
        *(f"      {line}" for line in epilogue(
            step, dtype, f"hi_load(p{at.get('bias')}[column])", f"hi_load(p{at.get('addend')}[place])"
        )),
        f"      p{len(step.inputs)}[place] = HiStore<{STORED[dtype]}, {c}>::of(total);",
        "    }",
        "}",
    ]
    parameters = declaration(types, 1, reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [f"enum {{ TILE = {TILE}, DEPTH = {DEPTH}, PITCH = {PITCH} }};",
         f"template <class I> __device__ inline void {name}_body({parameters}) {{",
         "  extern __shared__ __align__(16) unsigned char hi_shared[];", *(f"  {line}" for line in lines), "}"]
    )  # fmt: skip
    entries, points = entry_points(name, parameters, passed, indices(made.elements), THREADS)
    memory = 2 * DEPTH * PITCH * BYTES[inside(dtype)]
    source = head(text) + "\n" + text + points + "\n"
    return Kernel(
        source, entries, types, reach.numbers, made.elements, 1, rows=tiles, shared=memory, threads=THREADS, blocks=True
    )
