"""CUDA C for attention in float32, for heads of up to 128: tiles of keys and values that many queries share.

Sixteen threads have four queries: a score each for two keys of a tile, then so many columns of the weighted sums. What
they hand each other, the weights, lies in shared memory and is read within the warp that wrote it. All arithmetic is of
float32, in no narrower type on the way; softmax is taken as keys come by, as in the kernel for matrix units.
"""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_access import Kernel, declaration
from hybrid_infer.backends.native._cuda_attention_operands import Attention, attention_of
from hybrid_infer.backends.native._cuda_batch import offsets
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_expressions import literal
from hybrid_infer.backends.native._cuda_tilings import Tiling, kept
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, Size, product

#: Queries of sixteen threads, keys of a tile, the longest head.
EACH, KEYS, LONGEST = 4, 32, 128

#: Groups of sixteen threads in a block, blocks that a multiprocessor shall hold at once, and the cost (see `Tiling`):
#: the second reads keys and values four times as often, for GPUs that would idle otherwise.
_BLOCKS = ((16, 2, 8), (4, 4, 3))

#: Floats between lines in shared memory beyond what they hold: of two lines side by side, 16 bytes lie in other banks.
_APART = 4

_HELPERS = """
#ifndef HI_ON_HOST
// One store, which the compiler does not make of four neighbours here.
__device__ inline void hi_four(float* to, const float (&from)[4]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]) : "memory");
}
#endif
// Copies LINES lines of LENGTH floats into shared memory, PITCH apart; in memory they lie `step` apart. Beyond `lines`
// and `length` stand zeros. With TURNED lines lie in memory as columns.
template <int LINES, int LENGTH, int PITCH, int V, bool TURNED>
__device__ inline void hi_floats(float* to, const float* from, long long step, int lines, int length) {
  if (TURNED) {
    for (int e = (int)threadIdx.x; e < LINES * LENGTH; e += (int)blockDim.x) {
      const int line = e % LINES, at = e / LINES;
      to[line * PITCH + at] = line < lines && at < length ? from[at * step + line] : 0.0f;
    }
  } else {
#pragma unroll 4
    for (int e = (int)threadIdx.x; e < LINES * (LENGTH / V); e += (int)blockDim.x) {
      const int line = e / (LENGTH / V), at = e % (LENGTH / V) * V;
      Pack<float, V> found = {};
      if (line < lines && at < length) found = *(const Pack<float, V>*)(from + line * step + at);
      *(Pack<float, V>*)(to + line * PITCH + at) = found;
    }
  }
}
"""


def attention_tiles(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of an attention step of float32; None for another type, or a longer head."""
    made = attention_of(plan, step)
    if made is None or {*made.types[:3], made.types[-1]} != {"float32"}:
        return None
    inner, outer = made.inner, made.outer
    if isinstance(inner, Size) or isinstance(outer, Size) or not (0 < inner <= LONGEST and 0 < outer <= LONGEST):
        return None
    deep, wide = -(-inner // 8) * 8, -(-outer // 64) * 64
    body = _body(made, inner, outer, deep, wide)
    parameters = declaration(made.types, 1, made.reach.numbers)
    numbers = range(len(made.reach.numbers))
    passed = ", ".join([*(f"p{i}" for i in range(len(made.types))), *(f"n{i}" for i in numbers)])
    opening = f"template <int GROUPS> __device__ inline void {name}_body({parameters}) {{"
    text = "\n".join([_HELPERS, opening, *body, "}"])
    tilings, held = [], {}
    for groups, blocks, cost in _BLOCKS:
        queries, entry = EACH * groups, f"{name}_t{EACH * groups}"
        memory = 4 * ((queries + KEYS) * (deep + _APART) + KEYS * wide + queries * (KEYS + _APART))
        down: Dim = (made.queries + (queries - 1)) // queries
        tilings.append(Tiling(entry, down * product(made.batch), 16 * groups, memory, cost, cost))
        held[entry] = (groups, blocks)
    tilings = kept(tilings)
    for each in tilings:
        groups, blocks = held[each.entry]
        text += (
            f'\nextern "C" __global__ void __launch_bounds__({each.threads}, {blocks}) {each.entry}({parameters}) '
            f"{{ {name}_body<{groups}>({passed}); }}"
        )
    sizes = " or ".join(str(EACH * held[each.entry][0]) for each in tilings)
    return Kernel(
        head(text) + "\n" + text + "\n", {}, made.types, made.reach.numbers, made.elements, 1, blocks=True,
        tilings=tilings, what=f"its own kernel computes it in float32, {sizes} queries a block",
    )  # fmt: skip


def _body(made: Attention, inner: int, outer: int, deep: int, wide: int) -> list[str]:
    at, term, near = made.step.attributes, made.reach.term, made.near
    turned = bool(at["k_turned"])
    v_in, v_out = (4 if length % 4 == 0 else 1 for length in (inner, outer))
    nothing = literal(float("-inf"), "float32")
    seen = f"p3[seen[i] + (from + w + 16 * j) * {near('m', -1)}]" if made.masked else ""
    lines = f"""
  typedef long long I;
  constexpr int QUERIES = {EACH} * GROUPS, KEYS = {KEYS}, INNER = {inner}, OUTER = {outer};
  constexpr int DEEP = {deep}, WIDE = {wide}, LINE = DEEP + {_APART}, PITCH = KEYS + {_APART};
  constexpr int PARTS = WIDE / 64, V = {v_out};
  typedef Pack<float, 4> Four;
  extern __shared__ __align__(16) unsigned char hi_shared[];
  float* const query = (float*)hi_shared;
  float* const key = query + QUERIES * LINE;
  float* const value = key + KEYS * LINE;
  const int u = (int)threadIdx.x / 16, w = (int)threadIdx.x % 16;
  float* const weight = value + KEYS * WIDE + u * {EACH} * PITCH;
  const I queries = {term(made.queries)}, keys = {term(made.keys)};
  const int down = (int)((queries + QUERIES - 1) / QUERIES), tiles = down * (int)({term(product(made.batch))});
  const I q_line = {near("q", -2)}, k_line = {near("k", -1 if turned else -2)}, v_line = {near("v", -2)};
  for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {{
    const I first = (I)(tile % down) * QUERIES;
    OFFSETS
    const int high = (int)(queries - first < QUERIES ? queries - first : QUERIES);
    hi_floats<QUERIES, DEEP, LINE, {v_in}, false>(query, p0 + q0 + first * q_line, q_line, high, INNER);
    float out[{EACH}][PARTS][4] = {{}}, top[{EACH}], total[{EACH}] = {{}};
    for (int i = 0; i < {EACH}; ++i) top[i] = {nothing};
    MASK
    for (I from = 0; from < keys; from += KEYS) {{
      const int count = (int)(keys - from < KEYS ? keys - from : KEYS);
      __syncthreads();  // all have done with the tile that is overwritten
      hi_floats<KEYS, DEEP, LINE, {1 if turned else v_in}, {"true" if turned else "false"}>(
          key, p1 + k0 + from * {"1" if turned else "k_line"}, k_line, count, INNER);
      hi_floats<KEYS, WIDE, WIDE, {v_out}, false>(value, p2 + v0 + from * v_line, v_line, count, OUTER);
      __syncthreads();
      const int rest = count - w;
      float sum[{EACH}][2] = {{}};
#pragma unroll 4
      for (int d = 0; d < DEEP; d += 4) {{
        Four x[{EACH}], y[2];
#pragma unroll
        for (int i = 0; i < {EACH}; ++i) x[i] = *(const Four*)(query + (u * {EACH} + i) * LINE + d);
#pragma unroll
        for (int j = 0; j < 2; ++j) y[j] = *(const Four*)(key + (w + 16 * j) * LINE + d);
#pragma unroll
        for (int i = 0; i < {EACH}; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int l = 0; l < 4; ++l) sum[i][j] += x[i].v[l] * y[j].v[l];
      }}
#pragma unroll
      for (int i = 0; i < {EACH}; ++i) {{
        float high = top[i];
#pragma unroll
        for (int j = 0; j < 2; ++j) {{
          float score = sum[i][j];
          if (16 * j < rest) score = {made.score(seen)};
          else score = {nothing};
          sum[i][j] = score;
          high = fmaxf(high, score);
        }}
#pragma unroll
        for (int lane = 8; lane > 0; lane >>= 1) high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, lane));
        // Of -inf alone so far: exponentials are 0, so that what comes later is not spoilt. A NaN spoils the sums.
        const float base = high == {nothing} ? 0.0f : high;
        const float kept = expf(top[i] - base);
        top[i] = high;
        total[i] *= kept;
#pragma unroll
        for (int j = 0; j < 2; ++j) {{
          const float one = expf(sum[i][j] - base);
          total[i] += one;
          weight[i * PITCH + w + 16 * j] = one;
        }}
#pragma unroll
        for (int c = 0; c < PARTS; ++c)
#pragma unroll
          for (int l = 0; l < 4; ++l) out[i][c][l] *= kept;
      }}
      __syncwarp();  // the weights of these queries are there for all sixteen
#pragma unroll 2
      for (int t = 0; t < KEYS; t += 4) {{
        Four x[{EACH}];
#pragma unroll
        for (int i = 0; i < {EACH}; ++i) x[i] = *(const Four*)(weight + i * PITCH + t);
#pragma unroll
        for (int l = 0; l < 4; ++l)
#pragma unroll
          for (int c = 0; c < PARTS; ++c) {{
            const Four y = *(const Four*)(value + (t + l) * WIDE + (w + 16 * c) * 4);
#pragma unroll
            for (int i = 0; i < {EACH}; ++i)
#pragma unroll
              for (int m = 0; m < 4; ++m) out[i][c][m] += x[i].v[l] * y.v[m];
          }}
      }}
    }}
#pragma unroll
    for (int i = 0; i < {EACH}; ++i)
#pragma unroll
      for (int lane = 8; lane > 0; lane >>= 1) total[i] += __shfl_xor_sync(0xffffffffu, total[i], lane);
#pragma unroll
    for (int i = 0; i < {EACH}; ++i) {{
      const int row = u * {EACH} + i;
      if (row >= high) continue;
      const float share = keys == 0 ? 0.0f : 1.0f / total[i];
#pragma unroll
      for (int c = 0; c < PARTS; ++c) {{
        const int d = (w + 16 * c) * 4;
#pragma unroll
        for (int l = 0; l < 4; ++l) out[i][c][l] *= share;
        ZERO
        float* const to = p{len(made.types) - 1} + y0 + (first + row) * {near("y", -2)} + d;
        if (V == 4) {{
          if (d < OUTER) hi_four(to, out[i][c]);
        }} else {{
#pragma unroll
          for (int l = 0; l < 4; ++l)
            if (d + l < OUTER) to[l] = out[i][c][l];
        }}
      }}
    }}
    __syncthreads();
  }}"""
    # Of a row whose weights are all NaN, they are 0: of its values only what 0 does not swallow is left.
    zero = """if (keys && !(total[i] > 0.0f)) {
#pragma unroll
  for (int l = 0; l < 4; ++l) out[i][c][l] = 0.0f;
#pragma unroll 1
  for (I t = 0; t < keys; ++t)
#pragma unroll
    for (int l = 0; l < 4; ++l)
      if (d + l < OUTER) out[i][c][l] += 0.0f * p2[v0 + t * v_line + d + l];
}"""
    inner_lines = {
        "OFFSETS": offsets(made.reach, made.batch, "tile / down", made.places),
        "MASK": _mask(made) if made.masked else [],
        "ZERO": zero.splitlines() if at["zero_nan"] else [],
    }
    found = []
    for line in lines.strip("\n").splitlines():
        key = line.strip()
        found += [each if each[0] == "#" else line.replace(key, each) for each in inner_lines[key]] if (
            key in inner_lines
        ) else [line]
    return found


def _mask(made: Attention) -> list[str]:
    """Where the mask's lines of a thread's rows begin; rows beyond the last read those of the last."""
    row = f"first + (u * {EACH} + i < high ? u * {EACH} + i : high - 1)"
    return [f"I seen[{EACH}];", f"for (int i = 0; i < {EACH}; ++i) seen[i] = m0 + ({row}) * {made.near('m', -2)};"]
