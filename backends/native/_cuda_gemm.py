"""CUDA C for products of matrices where no library computes them: tiles of 64 by 64, a thread for 4 by 4 of them.

Sums are taken in float32 (float64 for float64); bias, addend and activation are applied before the one rounding.
"""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_batch import leading, offsets, strides
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED, expression
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, product

#: Rows and columns of a tile, depth of a slice, elements of a thread each way; threads of a block follow.
TILE, DEPTH, EACH = 64, 16, 4
THREADS = (TILE // EACH) ** 2


def gemm(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a ``gemm`` or ``matmul`` step, of `THREADS` threads a block; None where shapes are not known."""
    at = step.attributes
    known = [plan.values[each].shape for each in (*step.inputs, *step.outputs)]
    a, b, y = known[0], known[1], known[-1]
    if a is None or b is None or y is None:
        return None
    if step.op == "gemm":  # all leading axes are rows
        if not at["trans_a"]:
            a = (product(a[:-1]), a[-1])
        y = (product(y[:-1]), y[-1])
    a_size, a_step = strides(a)
    b_size, b_step = strides(b)
    if at["trans_a"]:
        a_size, a_step = [*a_size[:-2], a_size[-1], a_size[-2]], [*a_step[:-2], a_step[-1], a_step[-2]]
    if at["trans_b"]:
        b_size, b_step = [*b_size[:-2], b_size[-1], b_size[-2]], [*b_step[:-2], b_step[-1], b_step[-2]]
    y_size, y_step = strides(y)
    batch, rows, columns, depth = y_size[:-2], y_size[-2], y_size[-1], a_size[-1]
    first, second, third = (
        leading(size, steps, batch) for size, steps in ((a_size, a_step), (b_size, b_step), (y_size, y_step))
    )
    if first is None or second is None or third is None:
        return None
    reach = Access([1], [])
    types = [plan.values[each].dtype for each in (*step.inputs, *step.outputs)]
    dtype = types[-1]
    c = COMPUTE[inside(dtype)]
    term = reach.term
    tiles_down: Dim = (rows + (TILE - 1)) // TILE
    tiles_across: Dim = (columns + (TILE - 1)) // TILE
    load_a = f"hi_load(p0[a0 + (row0 + i) * {term(a_step[-2])} + (k0 + k) * {term(a_step[-1])}])"
    load_b = f"hi_load(p1[b0 + (k0 + k) * {term(b_step[-2])} + (column0 + i) * {term(b_step[-1])}])"
    # Which index runs fastest over the threads follows what lies side by side in memory.
    a_index = ("e % DEPTH", "e / DEPTH") if a_step[-1] == 1 else ("e / TILE", "e % TILE")
    b_index = ("e % DEPTH", "e / DEPTH") if b_step[-2] == 1 else ("e / TILE", "e % TILE")
    lines = [
        f"const I rows = {term(rows)}, columns = {term(columns)}, depth = {term(depth)};",
        f"const I down = {term(tiles_down)}, across = {term(tiles_across)};",
        f"const I tiles = down * across * {term(product(batch))};",
        f"{c}* left = ({c}*)hi_shared;",
        f"{c}* right = left + DEPTH * TILE;",
        f"const int u = threadIdx.x / {TILE // EACH}, w = threadIdx.x % {TILE // EACH};",
        "for (I tile = blockIdx.x; tile < tiles; tile += gridDim.x) {",
        "  const I row0 = tile / across % down * TILE, column0 = tile % across * TILE;",
        *(f"  {e}" for e in offsets(reach, batch, "tile / across / down", {"a": first, "b": second, "y": third})),
        f"  {c} sum[{EACH}][{EACH}] = {{}};",
        "  for (I k0 = 0; k0 < depth; k0 += DEPTH) {",
        f"    for (int e = threadIdx.x; e < DEPTH * TILE; e += {THREADS}) {{",
        f"      {{ const int k = {a_index[0]}, i = {a_index[1]};",
        f"        left[k * TILE + i] = row0 + i < rows && k0 + k < depth ? {load_a} : ({c})0; }}",
        f"      {{ const int k = {b_index[0]}, i = {b_index[1]};",
        f"        right[k * TILE + i] = column0 + i < columns && k0 + k < depth ? {load_b} : ({c})0; }}",
        "    }",
        "    __syncthreads();",
        "    for (int k = 0; k < DEPTH; ++k)",
        "#pragma unroll",
        f"      for (int i = 0; i < {EACH}; ++i)",
        "#pragma unroll",
        f"        for (int j = 0; j < {EACH}; ++j)",
        f"          sum[i][j] += left[k * TILE + u * {EACH} + i] * right[k * TILE + w * {EACH} + j];",
        "    __syncthreads();",
        "  }",
        f"  for (int i = 0; i < {EACH}; ++i)",
        f"    for (int j = 0; j < {EACH}; ++j) {{",
        f"      const I row = row0 + u * {EACH} + i, column = column0 + w * {EACH} + j;",
        "      if (row >= rows || column >= columns) continue;",
        f"      const I place = y0 + row * {term(y_step[-2])} + column;",
        f"      {c} total = sum[i][j];",
    ]
    if "bias" in at:
        lines.append(f"      total += hi_load(p{at['bias']}[column]);")
    if "addend" in at:
        lines.append(f"      total += hi_load(p{at['addend']}[place]);")
    if at.get("activation"):
        op, more = ("Relu", {}) if at["activation"] == "relu" else ("Gelu", {"approximate": "tanh"})
        lines.append(f"      total = {expression(op, ['total'], [dtype], dtype, more)};")
    lines += [
        f"      p{len(step.inputs)}[place] = HiStore<{STORED[dtype]}, {c}>::of(total);",
        "    }",
        "}",
    ]
    parameters = declaration(types, 1, reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [f"enum {{ TILE = {TILE}, DEPTH = {DEPTH} }};",
         f"template <class I> __device__ inline void {name}_body({parameters}) {{",
         "  extern __shared__ __align__(16) unsigned char hi_shared[];", *(f"  {line}" for line in lines), "}"]
    )  # fmt: skip
    largest: Dim = 0
    for shape in known:
        largest = largest + (product(shape) if shape is not None else 0)
    entries = {}
    for wide in indices(largest):
        entry = entries[1, wide] = f"{name}_{'l' if wide else 'i'}1"
        text += (
            f'\nextern "C" __global__ void __launch_bounds__({THREADS}) {entry}({parameters}) '
            f"{{ {name}_body<{'long long' if wide else 'int'}>({passed}); }}"
        )
    memory = 2 * DEPTH * TILE * BYTES[inside(dtype)]
    source = head(text) + "\n" + text + "\n"
    tiles = tiles_down * tiles_across * product(batch)
    return Kernel(
        source, entries, types, reach.numbers, largest, 1, rows=tiles, shared=memory, threads=THREADS, blocks=True
    )
