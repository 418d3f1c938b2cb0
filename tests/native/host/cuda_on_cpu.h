// Enough of CUDA for a host compiler to build generated kernels and run them as they are: the threads of a block are
// fibers that take turns where they wait for each other, so that shared memory, barriers and warps are those of the
// kernel. One warp runs as far as a barrier lets it before the next begins; `hi_schedule` turns the order around, and
// what reads, between two barriers, what another warp writes between them gives another result then.
#pragma once
#include <cmath>
#include <csetjmp>
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
#define __launch_bounds__(...)

struct Dim3 { unsigned x, y, z; };
inline Dim3 threadIdx, blockIdx, blockDim, gridDim;
alignas(16) inline unsigned char hi_shared[1 << 20];

struct Fiber {
  ucontext_t context;
  jmp_buf place;
  std::vector<char> stack;
  bool begun, done;
  // It waits for as long as what it looks at is what it saw.
  const unsigned* gate;
  unsigned seen;
};
struct Warp {
  void* given[32];
  unsigned arrived, generation;
};
inline jmp_buf scheduler;
inline Fiber* current;
inline std::function<void()>* work;
inline Warp warps[32];
inline unsigned barrier, arrived, live;
inline bool turned, late, stuck;

// In which order warps and their threads run, and whether asynchronous copies are made as late as they may be.
extern "C" void hi_schedule(int reverse, int lazy) { turned = reverse, late = lazy; }
// Has a block waited for ever, since not all of its threads came to one place?
extern "C" int hi_stuck() { return stuck; }

inline void hi_yield(const unsigned* gate, unsigned seen) {
  current->gate = gate, current->seen = seen;
  if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}
inline void __syncthreads() {
  ++arrived;
  hi_yield(&barrier, barrier);
}
// All threads of a warp bring something; the last one does with it what is to be done for all.
template <class F> void hi_together(void* mine, F all) {
  Warp& warp = warps[threadIdx.x / 32];
  warp.given[threadIdx.x % 32] = mine;
  if (++warp.arrived == 32) {
    warp.arrived = 0;
    all(warp.given);
    ++warp.generation;
  } else {
    hi_yield(&warp.generation, warp.generation);
  }
}
template <class T> T __shfl_xor_sync(unsigned, T x, int lane) {
  struct { T mine, found; } both = {x, x};
  hi_together(&both, [lane](void** each) {
    for (int i = 0; i < 32; ++i) ((decltype(both)*)each[i])->found = ((decltype(both)*)each[i ^ lane])->mine;
  });
  return both.found;
}
inline void __syncwarp() {
  hi_together(nullptr, [](void**) {});
}
inline void fiber_main() {
  (*work)();
  current->done = true;
  --live;
  _longjmp(scheduler, 1);
}
__attribute__((noinline)) inline void hi_resume(Fiber& fiber) {
  current = &fiber;
  if (_setjmp(scheduler)) return;
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
}
// Runs a warp until each of its threads waits for others or is done. Did any of them move?
inline bool hi_advance(std::vector<Fiber>& fibers, unsigned b, unsigned first, unsigned count) {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned i = 0; i < count; ++i) {
      const unsigned t = first + (turned ? count - 1 - i : i);
      Fiber& fiber = fibers[t];
      if (fiber.done || (fiber.gate && *fiber.gate == fiber.seen)) continue;
      moved = any = true;
      fiber.gate = nullptr;
      blockIdx = {b, 0, 0};
      threadIdx = {t, 0, 0};
      hi_resume(fiber);
    }
  }
  return any;
}
inline void launch(unsigned grid, unsigned block, std::function<void()> kernel) {
  work = &kernel;
  gridDim = {grid, 1, 1};
  blockDim = {block, 1, 1};
  std::vector<Fiber> fibers(block);
  for (unsigned b = 0; b < grid; ++b) {
    std::memset(hi_shared, 0xff, sizeof(hi_shared) / 4);  // NaN: what is read before it is written shows
    for (auto& fiber : fibers) {
      fiber.stack.resize(1 << 15);
      fiber.begun = fiber.done = false;
      fiber.gate = nullptr;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, fiber_main, 0);
    }
    std::memset(warps, 0, sizeof(warps));
    arrived = 0, live = block;
    const unsigned count = (block + 31) / 32;
    while (live) {
      bool any = false;
      for (unsigned i = 0; i < count; ++i) {
        const unsigned warp = turned ? count - 1 - i : i;
        any |= hi_advance(fibers, b, warp * 32, block - warp * 32 < 32 ? block - warp * 32 : 32);
      }
      if (live && arrived == live) {
        arrived = 0;
        ++barrier;
      } else if (!any) {
        stuck = true;
        return;
      }
    }
  }
}
