// Enough of CUDA for a host compiler to build generated kernels and run them as they are: the threads of a block are
// fibers that take turns at each barrier, so that shared memory, shuffles and reductions are those of the kernel.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __restrict__
#define __shared__
#define __align__(n)
#define __launch_bounds__(n)

struct Dim3 { unsigned x, y, z; };
inline Dim3 threadIdx, blockIdx, blockDim, gridDim;
alignas(16) inline unsigned char hi_shared[1 << 20];

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done = false;
};
inline ucontext_t scheduler;
inline Fiber* current;
inline std::function<void()>* work;
inline uint64_t exchange[1024];

inline void __syncthreads() { swapcontext(&current->context, &scheduler); }
inline void fiber_main() {
  (*work)();
  current->done = true;
  swapcontext(&current->context, &scheduler);
}
template <class T> T __shfl_xor_sync(unsigned, T x, int lane) {
  std::memcpy(&exchange[threadIdx.x], &x, sizeof(T));
  __syncthreads();
  T other;
  std::memcpy(&other, &exchange[threadIdx.x ^ lane], sizeof(T));
  __syncthreads();
  return other;
}
inline void launch(unsigned grid, unsigned block, std::function<void()> kernel) {
  work = &kernel;
  gridDim = {grid, 1, 1};
  blockDim = {block, 1, 1};
  std::vector<Fiber> fibers(block);
  for (unsigned b = 0; b < grid; ++b) {
    std::memset(hi_shared, 0xff, sizeof(hi_shared) / 16);  // NaN: what is read before it is written shows
    for (auto& fiber : fibers) {
      fiber.stack.resize(1 << 15);
      fiber.done = false;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, fiber_main, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (unsigned t = 0; t < block; ++t) {
        if (fibers[t].done) continue;
        any = true;
        blockIdx = {b, 0, 0};
        threadIdx = {t, 0, 0};
        current = &fibers[t];
        swapcontext(&scheduler, &current->context);
      }
    }
  }
}
