"""CUDA C for attention in half precision by a GPU's matrix units, for heads of up to 128: softmax as keys come by.

A block has the queries of a tile, a warp 16 of them. Keys and values go through shared memory tile by tile, the next on
its way while one is worked on. Scores stay in registers, with the largest so far, the sum of exponentials and the sums
of weighted values, which are scaled down when a larger score turns up. Sums and exponentials are of float32; weights,
between 0 and 1, are rounded to the type of the values for the second product.

Where a GPU has few blocks, two warps have the same queries and every other tile, which hides more latencies; what they
found is joined at the end.

A row of nothing but -inf gives NaN, or 0 where the step says so, as the interpreter has it; what is masked still counts
where its value is NaN or infinite, since 0 times that is NaN.
"""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_access import Kernel, declaration
from hybrid_infer.backends.native._cuda_attention_operands import Attention, attention_of
from hybrid_infer.backends.native._cuda_batch import offsets
from hybrid_infer.backends.native._cuda_expressions import STORED, literal
from hybrid_infer.backends.native._cuda_tensor_cores import LEAST_SHARED, TYPES, WORD, whole_head
from hybrid_infer.backends.native._cuda_tilings import Tiling, kept
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, Size, product

#: Warps that have queries of their own, a block's queries, and the keys of a tile.
WARPS, KEYS = 4, 64
QUERIES = 16 * WARPS

#: Warps that share queries, cost, and time of a block alone (see `Tiling`).
_SHARES = ((1, 5, 10), (2, 6, 6))

#: The longest head: its sums and its query lie in registers.
LONGEST = 128


def attention_on_units(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of an attention step of half precision; None for another, or a longer head."""
    made = attention_of(plan, step)
    if made is None or made.types[0] not in TYPES or len({*made.types[:3], made.types[-1]}) > 1:
        return None
    inner, outer = made.inner, made.outer
    if isinstance(inner, Size) or isinstance(outer, Size) or not (0 < inner <= LONGEST and 0 < outer <= LONGEST):
        return None
    dtype, deep, wide = made.types[0], _padded(inner), _padded(outer)
    turned = bool(step.attributes["k_turned"])
    body = _body(made, inner, outer)
    parameters = declaration(made.types, 1, made.reach.numbers)
    numbers = range(len(made.reach.numbers))
    passed = ", ".join([*(f"p{i}" for i in range(len(made.types))), *(f"n{i}" for i in numbers)])
    down: Dim = (made.queries + (QUERIES - 1)) // QUERIES
    tilings, held = [], {}
    for shares, cost, alone in _SHARES if isinstance(made.keys, Size) or made.keys > KEYS else _SHARES[:1]:
        entry, count = f"{name}_t{shares}", KEYS * shares
        key_tile = deep * (count + WORD) if turned else count * (deep + WORD)
        memory = 2 * (QUERIES * (max(deep, wide) + WORD) + 2 * key_tile + 2 * count * (wide + WORD)) + 4 * QUERIES
        tilings.append(Tiling(entry, down * product(made.batch), 32 * WARPS * shares, memory, cost, alone))
        held[entry] = shares
    tilings = kept(tilings, LEAST_SHARED)
    text = "\n".join([f"template <int SHARES> __device__ inline void {name}_body({parameters}) {{", *body, "}"])
    for each in tilings:
        # So many registers that nothing spills, and so few that this many blocks share a multiprocessor.
        blocks = 1 if held[each.entry] > 1 else 3 if max(deep, wide) <= 64 else 2
        text += (
            f'\nextern "C" __global__ void __launch_bounds__({each.threads}, {blocks}) {each.entry}({parameters}) '
            f"{{ {name}_body<{held[each.entry]}>({passed}); }}"
        )
    return Kernel(
        whole_head(text, dtype) + "\n" + text + "\n", {}, made.types, made.reach.numbers, made.elements, 1, blocks=True,
        tilings=tilings,
        what=f"its own kernel computes it on matrix units, {QUERIES} queries a block, where no library does",
    )  # fmt: skip


def _padded(length: int) -> int:
    """To whole 16x16 fragments."""
    return -(-length // 16) * 16


def _body(made: Attention, inner: int, outer: int) -> list[str]:
    at, term, near, c = made.step.attributes, made.reach.term, made.near, STORED[made.types[0]]
    deep, wide, turned = _padded(inner), _padded(outer), bool(at["k_turned"])
    v = next(each for each in (WORD, 4, 2, 1) if outer % each == 0)
    whole_q, whole_v = ("true" if length % WORD == 0 else "false" for length in (inner, outer))
    # Both ways to copy, for the call to tell, would take more registers than there are.
    whole_k = ("false" if isinstance(made.keys, Size) or made.keys % WORD else "true") if turned else whole_q
    k_line = near("k", -1 if turned else -2)
    down: Dim = (made.queries + (QUERIES - 1)) // QUERIES
    nothing, step = literal(float("-inf"), "float32"), near("m", -1) if made.masked else ""
    lines = f"""
  typedef {c} T;
  typedef long long I;
  constexpr int QUERIES = {QUERIES}, KEYS = {KEYS}, STRIPE = KEYS * SHARES, OWN = {32 * WARPS}, THREADS = OWN * SHARES;
  constexpr int INNER = {inner}, OUTER = {outer}, DEEP = {deep}, WIDE = {wide}, V = {v};
  constexpr bool TURNED = {"true" if turned else "false"};
  constexpr int K_LINES = TURNED ? DEEP : STRIPE, K_LENGTH = TURNED ? STRIPE : DEEP, K_PITCH = K_LENGTH + {WORD};
  constexpr int K_SIZE = K_LINES * K_PITCH, PITCH = WIDE + {WORD}, V_SIZE = STRIPE * PITCH;
  constexpr int FIRST = QUERIES * ((DEEP > WIDE ? DEEP : WIDE) + {WORD});
  extern __shared__ __align__(16) unsigned char hi_shared[];
  T* const query = (T*)hi_shared;
  T* const stages = query + FIRST;
  T* const result = query;
  int* const sound = (int*)(stages + 2 * (K_SIZE + V_SIZE));
  const int warp = (int)threadIdx.x % OWN >> 5, share = (int)threadIdx.x / OWN, lane = (int)threadIdx.x & 31;
  const I queries = {term(made.queries)}, keys = {term(made.keys)};
  const int down = (int)({term(down)}), tiles = down * (int)({term(product(made.batch))});
  const I q_line = {near("q", -2)}, k_line = {k_line}, v_line = {near("v", -2)};
  const int steps = (int)((keys + STRIPE - 1) / STRIPE);
  for (int tile = (int)blockIdx.x; tile < tiles; tile += (int)gridDim.x) {{
    const I first = (I)(tile % down) * QUERIES;
    OFFSETS
    const int high = (int)(queries - first < QUERIES ? queries - first : QUERIES);
    auto fetch = [&](int step) {{
      const I from = (I)step * STRIPE;
      const int count = (int)(keys - from < STRIPE ? keys - from : STRIPE);
      T* const to = stages + step % 2 * (K_SIZE + V_SIZE);
      hi_tile<T, K_LINES, K_LENGTH, THREADS>(to, p1 + k0 + from * (TURNED ? 1 : k_line), k_line,
                                             TURNED ? INNER : count, TURNED ? count : INNER, {whole_k});
      hi_tile<T, STRIPE, WIDE, THREADS>(to + K_SIZE, p2 + v0 + from * v_line, v_line, count, OUTER, {whole_v});
    }};
    hi_tile<T, QUERIES, DEEP, THREADS>(query, p0 + q0 + first * q_line, q_line, high, INNER, {whole_q});
    if (steps) fetch(0);
    hi_commit();
    hi_wait<0>();
    __syncthreads();
    unsigned left[DEEP / 16][4];
#pragma unroll
    for (int i = 0; i < DEEP / 16; ++i) hi_left<false, DEEP + {WORD}>(left[i], query, warp * 16, i * 16, lane);
    float out[WIDE / 8][4] = {{}}, top[2] = {{{nothing}, {nothing}}}, total[2] = {{}};
    MASK
    for (int step = 0; step < steps; ++step) {{
      // Beyond the barrier this tile is there for every thread, and all have done with the one that is overwritten.
      hi_wait<0>();
      __syncthreads();
      if (step + 1 < steps) fetch(step + 1);
      hi_commit();
      const T* const k = stages + step % 2 * (K_SIZE + V_SIZE);
      float sum[KEYS / 8][4] = {{}};
#pragma unroll
      for (int i = 0; i < DEEP / 16; ++i)
#pragma unroll
        for (int j = 0; j < KEYS / 16; ++j) {{
          unsigned right[4];
          hi_right<!TURNED, K_PITCH>(right, k, share * KEYS + j * 16, i * 16, lane);
          hi_mma<T>(sum[2 * j], left[i], right[0], right[1]);
          hi_mma<T>(sum[2 * j + 1], left[i], right[2], right[3]);
        }}
      const I t = (I)step * STRIPE + share * KEYS + lane % 4 * 2;
      const int rest = (int)(keys - t < KEYS ? keys - t : KEYS);
      SEEN
#pragma unroll
      for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {{
          float score = sum[j][e];
          SCORE
          sum[j][e] = score;
        }}
#pragma unroll
      for (int h = 0; h < 2; ++h) {{
        float high = top[h];
#pragma unroll
        for (int j = 0; j < KEYS / 8; ++j) high = fmaxf(high, fmaxf(sum[j][2 * h], sum[j][2 * h + 1]));
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
        high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
        // Of -inf alone so far: exponentials are 0, so that what comes later is not spoilt. A NaN spoils the sums.
        const float base = high == {nothing} ? 0.0f : high;
        const float kept = hi_exp2((top[h] - base) * LOG2E);
        top[h] = high;
        total[h] *= kept;
#pragma unroll
        for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
          for (int e = 2 * h; e < 2 * h + 2; ++e) {{
            sum[j][e] = hi_exp2((sum[j][e] - base) * LOG2E);
            total[h] += sum[j][e];
          }}
#pragma unroll
        for (int n = 0; n < WIDE / 8; ++n) {{
          out[n][2 * h] *= kept;
          out[n][2 * h + 1] *= kept;
        }}
      }}
#pragma unroll
      for (int i = 0; i < KEYS / 16; ++i) {{
        // Where sums of the first product lie is where the second has its left operand.
        const unsigned weight[4] = {{hi_pair<T>(sum[2 * i][0], sum[2 * i][1]), hi_pair<T>(sum[2 * i][2], sum[2 * i][3]),
                                    hi_pair<T>(sum[2 * i + 1][0], sum[2 * i + 1][1]),
                                    hi_pair<T>(sum[2 * i + 1][2], sum[2 * i + 1][3])}};
#pragma unroll
        for (int n = 0; n < WIDE / 16; ++n) {{
          unsigned right[4];
          hi_right<false, PITCH>(right, k + K_SIZE, n * 16, share * KEYS + i * 16, lane);
          hi_mma<T>(out[2 * n], weight, right[0], right[1]);
          hi_mma<T>(out[2 * n + 1], weight, right[2], right[3]);
        }}
      }}
    }}
#pragma unroll
    for (int h = 0; h < 2; ++h) {{
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
      total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
    }}
    if (SHARES > 1) {{
      // Two threads have the same rows and columns: one hands over what it found, in the place of the tiles.
      float* const other = (float*)stages + threadIdx.x % OWN;
      __syncthreads();
      if (share) {{
#pragma unroll
        for (int h = 0; h < 2; ++h) {{
          other[h * OWN] = top[h];
          other[(2 + h) * OWN] = total[h];
#pragma unroll
          for (int n = 0; n < WIDE / 8; ++n) {{
            other[(4 + 4 * n + 2 * h) * OWN] = out[n][2 * h];
            other[(5 + 4 * n + 2 * h) * OWN] = out[n][2 * h + 1];
          }}
        }}
      }}
      __syncthreads();
      if (!share) {{
#pragma unroll
        for (int h = 0; h < 2; ++h) {{
          const float high = fmaxf(top[h], other[h * OWN]), base = high == {nothing} ? 0.0f : high;
          const float mine = hi_exp2((top[h] - base) * LOG2E), theirs = hi_exp2((other[h * OWN] - base) * LOG2E);
          total[h] = total[h] * mine + other[(2 + h) * OWN] * theirs;
#pragma unroll
          for (int n = 0; n < WIDE / 8; ++n) {{
            out[n][2 * h] = out[n][2 * h] * mine + other[(4 + 4 * n + 2 * h) * OWN] * theirs;
            out[n][2 * h + 1] = out[n][2 * h + 1] * mine + other[(5 + 4 * n + 2 * h) * OWN] * theirs;
          }}
        }}
      }}
    }}
    // Queries, in whose place results go, were read before the first barrier of the loop.
    if (!share) {{
#pragma unroll
      for (int h = 0; h < 2; ++h) {{
        const int row = warp * 16 + lane / 4 + h * 8;
        const float part = keys == 0 ? 0.0f : 1.0f / total[h];
        if (lane % 4 == 0) sound[row] = keys == 0 || total[h] > 0.0f;
#pragma unroll
        for (int n = 0; n < WIDE / 8; ++n)
          *(unsigned*)(result + row * PITCH + n * 8 + lane % 4 * 2) =
              hi_pair<T>(out[n][2 * h] * part, out[n][2 * h + 1] * part);
      }}
    }}
    __syncthreads();
    for (int e = (int)threadIdx.x; e < QUERIES * (OUTER / V); e += THREADS) {{
      const int i = e / (OUTER / V), d = e % (OUTER / V) * V;
      if (i >= high) continue;
      const Pack<T, V> line = *(const Pack<T, V>*)(result + i * PITCH + d);
      float found[V];
#pragma unroll
      for (int l = 0; l < V; ++l) found[l] = hi_load(line.v[l]);
      ZERO
      hi_store(p{len(made.types) - 1} + y0 + (first + i) * {near("y", -2)} + d, found);
    }}
    __syncthreads();
  }}""".replace("LOG2E", literal(1.4426950408889634, "float32"))
    # Of a row whose weights are all NaN, they are 0: of its values only what 0 does not swallow is left.
    zero = """
      if (!sound[i]) {
        for (int l = 0; l < V; ++l) found[l] = 0.0f;
        for (I t = 0; t < keys; ++t) {
          const Pack<T, V> value = *(const Pack<T, V>*)(p2 + v0 + t * v_line + d);
          for (int l = 0; l < V; ++l) found[l] += 0.0f * hi_load(value.v[l]);
        }
      }"""
    inner_lines = {
        "OFFSETS": offsets(made.reach, made.batch, "tile / down", made.places),
        "MASK": _mask(made) if made.masked else [],
        "SEEN": [f"const I at[2] = {{line[0] + t * {step}, line[1] + t * {step}}};"] if made.masked else [],
        "SCORE": _score(made, nothing),
        "ZERO": [line.removeprefix("      ") for line in zero.strip("\n").splitlines()] if at["zero_nan"] else [],
    }
    found = []
    for line in lines.strip("\n").splitlines():
        key = line.strip()
        found += [line.replace(key, each) for each in inner_lines[key]] if key in inner_lines else [line]
    return found


def _mask(made: Attention) -> list[str]:
    """Where the mask's lines of a thread's two rows begin; rows beyond the last read those of the last."""
    row = "first + (warp * 16 + lane / 4 + {} < high ? warp * 16 + lane / 4 + {} : high - 1)"
    lines = [f"m0 + ({row.format(8 * h, 8 * h)}) * {made.near('m', -2)}" for h in range(2)]
    return [f"const I line[2] = {{{lines[0]}, {lines[1]}}};"]


def _score(made: Attention, nothing: str) -> list[str]:
    """Beyond the last key nothing is seen, and no mask read."""
    seen = f"p3[at[e >> 1] + (j * 8 + (e & 1)) * {made.near('m', -1)}]" if made.masked else ""
    return [f"if (j * 8 + (e & 1) < rest) score = {made.score(seen)};", f"else score = {nothing};"]
