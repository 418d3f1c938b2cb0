"""CUDA C for what the threads of a row find together: of a warp, of a block, of a cluster of blocks.

PTX ISA, "Cluster barriers": ``barrier.cluster.arrive`` releases what a thread wrote, ``barrier.cluster.wait`` acquires
what the threads of all blocks of the cluster wrote in front of theirs; "mapa" finds a place of the own shared memory in
that of another block, which must have begun: ``hi_begin``, which releases nothing, tells the others that. A block may
end once nobody writes to its memory any more. ``.aligned`` asks that all threads of a warp come to a barrier together:
they meet (``__syncwarp``) behind what not all of them do.

A host compiler takes everything but the instructions: see `hybrid_infer.backends.native._cuda_tensor_cores`.
"""

from __future__ import annotations

_CLUSTER = """
#ifndef HI_ON_HOST
__device__ inline void hi_begin() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void hi_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void hi_await() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ inline unsigned hi_there(const void* place, int block) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(place)), "r"(block));
  return there;
}
__device__ inline void hi_give(float* slot, int block, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(hi_there(slot, block)), "f"(x) : "memory");
}
__device__ inline void hi_give(double* slot, int block, double x) {
  asm volatile("st.shared::cluster.f64 [%0], %1;" :: "r"(hi_there(slot, block)), "d"(x) : "memory");
}
#endif
"""

_GATHER = """
template <int W, int C, class T, class F> __device__ inline T hi_gather(T x, T start, F join, T* slots) {
  for (int lane = 16; lane > 0; lane >>= 1) x = join(x, __shfl_xor_sync(0xffffffffu, x, lane));
  if constexpr (W * C > 1) {
    const int warp = (int)threadIdx.x >> 5, lane = (int)threadIdx.x & 31;
GIVE
    x = start;
    if constexpr (W * C <= 8) {
#pragma unroll
      for (int i = 0; i < W * C; ++i) x = join(x, slots[i]);
    } else {
      for (int i = lane; i < W * C; i += 32) x = join(x, slots[i]);
      for (int other = 16; other > 0; other >>= 1) x = join(x, __shfl_xor_sync(0xffffffffu, x, other));
    }
  }
  return x;
}
"""

_GIVE = """    if (lane == 0) slots[warp] = x;
    __syncthreads();"""
_GIVE_ALL = """    if constexpr (C > 1) {
      if (lane < C) hi_give(slots + (int)blockIdx.x % C * W + warp, lane, x);
      __syncwarp();
      hi_arrive();
      hi_await();
    } else {
      if (lane == 0) slots[warp] = x;
      __syncthreads();
    }"""


def gather(clusters: bool) -> str:
    """``hi_gather<W, C>``, a reduction over a row that C blocks of W warps hold, of which every thread gets the result.

    It has W times C slots in shared memory, which may be used again once another reduction, with slots of its own, has
    come between. With `clusters`, C may be more than 1.
    """
    return (_CLUSTER if clusters else "") + _GATHER.replace("GIVE", _GIVE_ALL if clusters else _GIVE)
