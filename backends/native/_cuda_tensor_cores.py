"""CUDA C around a GPU's matrix units: warp-level products, loads of their operands, copies that run beside them.

PTX ISA, "Warp-level matrix instructions": ``mma.m16n8k16`` multiplies a 16x16 matrix by a 16x8 one and adds to sums in
float32, ``ldmatrix`` loads four 8x8 matrices whose rows lie in shared memory; "Data movement": ``cp.async`` copies 16
bytes from global to shared memory and is waited for by groups. All of it from compute capability 8.0 on.

A host compiler takes everything but the instructions themselves: those are left out where ``HI_ON_HOST`` is defined,
for another header to stand in.
"""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_body import head

#: The types whose products they take.
TYPES = ("float16", "bfloat16")

#: Bytes of shared memory that a block may have on every GPU that has them: 8.6, 8.9 and 12.0 have the least.
LEAST_SHARED = 99 << 10

#: Elements of 16 bytes, and by so many are lines in shared memory longer than what they hold: consecutive lines then
#: begin in different banks, since a line holds an even number of 16-byte words, and the eight of a matrix meet no bank
#: twice.
WORD = 8

_INSTRUCTIONS = """
#ifndef HI_ON_HOST
__device__ inline unsigned hi_place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ inline void hi_copy(void* to, const void* from, bool full) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(hi_place(to)), "l"(from), "r"(full ? 16 : 0) : "memory");
}
__device__ inline void hi_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ inline void hi_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
template <bool TURNED> __device__ inline void hi_matrices(unsigned (&to)[4], const void* row) {
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(hi_place(row)) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(hi_place(row)) : "memory");
}
template <class T> __device__ inline void hi_mma(float (&sum)[4], const unsigned (&left)[4], unsigned right0,
                                                 unsigned right1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.MMA.MMA.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
template <class T> __device__ inline unsigned hi_pair(float low, float high) {
  unsigned both;
  asm("cvt.rn.PAIR.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
__device__ inline void hi_put(void* to, const unsigned (&from)[1]) { *(unsigned*)to = from[0]; }
__device__ inline void hi_put(void* to, const unsigned (&from)[2]) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" :: "l"(to), "r"(from[0]), "r"(from[1]) : "memory");
}
__device__ inline void hi_put(void* to, const unsigned (&from)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "l"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]) : "memory");
}
__device__ inline float hi_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif
"""

_OPERANDS = """
// Copies LINES lines of LENGTH elements into shared memory, where one begins LENGTH + 8 after the other; in memory they
// lie `step` apart. Beyond `lines` and `length` stand zeros. `whole`: may 16 bytes be copied at a time?
template <class T, int LINES, int LENGTH, int THREADS>
__device__ inline void hi_tile(T* to, const T* from, long long step, int lines, int length, bool whole) {
  constexpr int EACH = LENGTH / 8, COUNT = LINES * EACH;
  if (!whole) {
#pragma unroll 4
    for (int e = (int)threadIdx.x; e < COUNT * 8; e += THREADS) {
      const int line = e / LENGTH, at = e % LENGTH;
      const bool inside = line < lines && at < length;
      to[line * (LENGTH + 8) + at] = inside ? from[line * step + at] : HiStore<T, float>::of(0.0f);
    }
    return;
  }
#pragma unroll
  for (int first = 0; first < COUNT; first += THREADS) {
    const int e = first + (int)threadIdx.x;
    if (COUNT % THREADS && e >= COUNT) break;
    // Where a step of all threads is a number of lines, a thread stays at its place in the line.
    constexpr bool STAYS = THREADS % EACH == 0;
    const int line = STAYS ? (int)threadIdx.x / EACH + first / EACH : e / EACH;
    const int at = (STAYS ? (int)threadIdx.x : e) % EACH * 8;
    const bool inside = line < lines && at < length;
    hi_copy(to + line * (LENGTH + 8) + at, inside ? from + line * step + at : from, inside);
  }
}
// The left operand of 16 rows and 16 of the depth: lines are rows, or with TURNED steps of the depth, PITCH apart.
template <bool TURNED, int PITCH, class T>
__device__ inline void hi_left(unsigned (&to)[4], const T* tile, int row, int depth, int lane) {
  if (TURNED) hi_matrices<true>(to, tile + (depth + (lane >> 4) * 8 + (lane & 7)) * PITCH + row + (lane & 8));
  else hi_matrices<false>(to, tile + (row + (lane & 15)) * PITCH + depth + (lane >> 4) * 8);
}
// The right operand of 16 columns and 16 of the depth, two for the first eight columns and two for the others: lines
// are steps of the depth, or with TURNED columns.
template <bool TURNED, int PITCH, class T>
__device__ inline void hi_right(unsigned (&to)[4], const T* tile, int column, int depth, int lane) {
  if (TURNED) hi_matrices<false>(to, tile + (column + (lane >> 4) * 8 + (lane & 7)) * PITCH + depth + (lane & 8));
  else hi_matrices<true>(to, tile + (depth + (lane & 15)) * PITCH + column + (lane >> 4) * 8);
}
"""


#: Rounds and stores neighbours, two in a register, so that one instruction writes up to eight of them.
_STORE = """
template <class T> __device__ inline void hi_store(T* to, const float (&from)[1]) {
  *to = HiStore<T, float>::of(from[0]);
}
template <class T, int V> __device__ inline void hi_store(T* to, const float (&from)[V]) {
  unsigned found[V / 2];
#pragma unroll
  for (int i = 0; i < V / 2; ++i) found[i] = hi_pair<T>(from[2 * i], from[2 * i + 1]);
  hi_put(to, found);
}
"""


def instructions(dtype: str) -> str:
    """The helpers for operands of that type, one of `TYPES`."""
    mma, pair = ("f16", "f16x2") if dtype == "float16" else ("bf16", "bf16x2")
    return _INSTRUCTIONS.replace("MMA", mma).replace("PAIR", pair) + _OPERANDS + _STORE


def whole_head(text: str, dtype: str) -> str:
    """What stands above a kernel whose source is `text`, those helpers included."""
    helpers = instructions(dtype)
    return head(text) + "\n" + helpers
