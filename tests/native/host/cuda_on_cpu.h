// Enough of CUDA for a host compiler to build generated kernels and run them as they are: the threads of a block are
// fibers that take turns where they wait for each other, so that shared memory, barriers and warps are those of the
// kernel. One warp runs as far as a barrier lets it before the next begins; `hi_schedule` turns the order around, and
// what reads, between two barriers, what another warp writes between them gives another result then. So it is with the
// blocks of a cluster, each of which has shared memory of its own and begins as late as may be.
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
#define __cluster_dims__(...)
#define HI_ON_HOST

struct HiTruth { unsigned char v; };
inline float hi_binary_power(float x) { return exp2f(x); }
inline float hi_inverse(float x) { return 1.0f / x; }
inline int atomicAdd(int* at, int more) { const int before = *at; *at += more; return before; }
inline int atomicCAS(int* at, int seen, int next) { const int before = *at; if (before == seen) *at = next; return before; }

struct Dim3 { unsigned x, y, z; };
inline Dim3 threadIdx, blockIdx, blockDim, gridDim;
constexpr unsigned hi_blocks = 8;  // of a cluster, at most
alignas(16) inline unsigned char hi_memory[hi_blocks][1 << 20];
inline unsigned char* hi_shared;  // of the block that runs

struct Fiber {
  ucontext_t context;
  jmp_buf place;
  std::vector<char> stack;
  bool begun, done;
  // It waits for as long as what it looks at is what it saw.
  const unsigned* gate;
  unsigned seen;
  unsigned phase;  // of the cluster's barrier, when it arrived there
};
struct Warp {
  void* given[32];
  unsigned arrived, generation;
};
struct Block {
  Warp warps[32];
  unsigned barrier, arrived, live;
  bool begun;
  std::vector<Fiber> fibers;
};
inline jmp_buf scheduler;
inline Fiber* current;
inline std::function<void()>* work;
inline Block blocks[hi_blocks];
inline Block* here;
inline unsigned cluster_barrier, cluster_arrived, cluster_threads;
inline bool turned, late, stuck;

// In which order warps and their threads run, and whether asynchronous copies are made as late as they may be.
extern "C" void hi_schedule(int reverse, int lazy) { turned = reverse, late = lazy; }
// Has a block waited for ever, since not all of its threads came to one place? Asked, it is forgotten: libraries of one
// process share what is here.
extern "C" int hi_stuck() {
  const bool was = stuck;
  stuck = false;
  return was;
}

// Bytes of shared memory that a launch asks for; behind them lies a fence, and whether a block has written there is asked.
inline unsigned hi_room;
constexpr unsigned hi_fence = 4096;
inline bool beyond;
extern "C" void hi_ask(int room) { hi_room = room, beyond = false; }
extern "C" int hi_beyond() { return beyond; }

inline void hi_yield(const unsigned* gate, unsigned seen) {
  current->gate = gate, current->seen = seen;
  if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}
inline void __syncthreads() {
  ++here->arrived;
  hi_yield(&here->barrier, here->barrier);
}
// All threads of a cluster arrive at its barrier, and wait for the others when they have to.
inline void hi_arrive() {
  current->phase = cluster_barrier;
  if (++cluster_arrived == cluster_threads) cluster_arrived = 0, ++cluster_barrier;
}
inline void hi_begin() { hi_arrive(); }
inline void hi_await() {
  if (cluster_barrier == current->phase) hi_yield(&cluster_barrier, current->phase);
}
template <class T> void hi_give(T* slot, int block, T x) {
  std::memcpy(hi_memory[block] + ((unsigned char*)slot - hi_shared), &x, sizeof(T));
}
// All threads of a warp bring something; the last one does with it what is to be done for all.
template <class F> void hi_together(void* mine, F all) {
  Warp& warp = here->warps[threadIdx.x / 32];
  warp.given[threadIdx.x % 32] = mine;
  if (++warp.arrived == 32) {
    warp.arrived = 0;
    all(warp.given);
    ++warp.generation;
  } else {
    hi_yield(&warp.generation, warp.generation);
  }
}
template <class T> T hi_shuffled(T x, int lane) {
  struct { T mine, found; } both = {x, x};
  hi_together(&both, [lane](void** each) {
    for (int i = 0; i < 32; ++i) ((decltype(both)*)each[i])->found = ((decltype(both)*)each[i ^ lane])->mine;
  });
  return both.found;
}
// Of the types that CUDA has it of, and no others: what is narrower comes back as an int.
#define HI_SHUFFLE(T) inline T __shfl_xor_sync(unsigned, T x, int lane) { return hi_shuffled(x, lane); }
HI_SHUFFLE(int) HI_SHUFFLE(unsigned) HI_SHUFFLE(long) HI_SHUFFLE(unsigned long) HI_SHUFFLE(long long)
HI_SHUFFLE(unsigned long long) HI_SHUFFLE(float) HI_SHUFFLE(double)
inline void __syncwarp() {
  hi_together(nullptr, [](void**) {});
}
inline void fiber_main() {
  (*work)();
  current->done = true;
  --here->live;
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
inline bool hi_advance(unsigned b, unsigned first, unsigned count) {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned i = 0; i < count; ++i) {
      const unsigned t = first + (turned ? count - 1 - i : i);
      Fiber& fiber = here->fibers[t];
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
inline void hi_prepare(Block& block, unsigned threads) {
  block.fibers.resize(threads);
  for (auto& fiber : block.fibers) {
    fiber.stack.resize(1 << 15);
    fiber.begun = fiber.done = false;
    fiber.gate = nullptr;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
  }
  std::memset(block.warps, 0, sizeof(block.warps));
  block.arrived = 0, block.live = threads, block.begun = false;
}
// As far as its threads get without those of other blocks. Did any of them move?
inline bool hi_run(unsigned b, unsigned rank, unsigned threads) {
  Block& block = blocks[rank];
  here = &block, hi_shared = hi_memory[rank];
  // NaN: what is read before it is written shows, and what is written before the block has begun is lost.
  if (!block.begun) std::memset(hi_shared, 0xff, sizeof(hi_memory[rank]) / 4);
  block.begun = true;
  const unsigned count = (threads + 31) / 32;
  bool any = false;
  for (bool released = true; released && block.live;) {
    for (unsigned i = 0; i < count; ++i) {
      const unsigned warp = turned ? count - 1 - i : i;
      any |= hi_advance(b, warp * 32, threads - warp * 32 < 32 ? threads - warp * 32 : 32);
    }
    released = block.live && block.arrived == block.live;
    if (released) block.arrived = 0, ++block.barrier, any = true;
  }
  for (unsigned i = 0; i < hi_fence; ++i) beyond |= hi_shared[hi_room + i] != 0xff;
  return any;
}
inline void launch(unsigned grid, unsigned threads, std::function<void()> kernel, unsigned cluster = 1) {
  work = &kernel;
  gridDim = {grid, 1, 1};
  blockDim = {threads, 1, 1};
  if (grid % cluster || cluster > hi_blocks) stuck = true;  // a GPU refuses that
  for (unsigned first = 0; first < grid && !stuck; first += cluster) {
    for (unsigned i = 0; i < cluster; ++i) hi_prepare(blocks[i], threads);
    cluster_arrived = 0, cluster_threads = cluster * threads;
    for (bool live = true; live;) {
      bool any = false;
      live = false;
      for (unsigned i = 0; i < cluster; ++i) {
        const unsigned rank = turned ? cluster - 1 - i : i;
        any |= hi_run(first + rank, rank, threads);
        live |= blocks[rank].live > 0;
      }
      if (live && !any) {
        stuck = true;
        return;
      }
    }
  }
}
