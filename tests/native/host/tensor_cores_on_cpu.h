// The instructions of `_cuda_tensor_cores.py` for the host, under the same names. Registers hold what PTX says that they
// hold: "Warp-level matrix load instruction: ldmatrix" and "Matrix Fragments for mma.m16n8k16 with floating point type".
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_on_cpu.h"

struct Copied { void* to; unsigned char bytes[16]; const void* from; bool full; };
inline std::vector<std::vector<std::vector<Copied>>> copies(1024);  // by thread, in groups, the last one open

inline void hi_make(const Copied& copy) {
  if (copy.full) std::memcpy(copy.to, copy.from, 16);
  else std::memset(copy.to, 0, 16);
}
inline std::vector<std::vector<Copied>>& hi_groups() {
  auto& groups = copies[threadIdx.x];
  if (groups.empty()) groups.emplace_back();
  return groups;
}
inline void hi_copy(void* to, const void* from, bool full) {
  if ((uintptr_t)to % 16 || (uintptr_t)from % 16) stuck = true;  // a GPU ends the program here
  const Copied copy = {to, {}, from, full};
  if (late) hi_groups().back().push_back(copy);
  else hi_make(copy);
}
inline void hi_commit() { hi_groups().emplace_back(); }
template <int N> void hi_wait() {
  auto& groups = hi_groups();
  while (groups.size() > N + 1) {
    for (const Copied& copy : groups.front()) hi_make(copy);
    groups.erase(groups.begin());
  }
}

// Threads 8 i to 8 i + 7 bring the rows of matrix i; thread t gets of each row t / 4 the elements 2 (t % 4) and the next.
struct Loaded { const void* row; unsigned (*to)[4]; bool turned; };
template <bool TURNED> void hi_matrices(unsigned (&to)[4], const void* row) {
  if ((uintptr_t)row % 16) stuck = true;
  Loaded mine = {row, &to, TURNED};
  hi_together(&mine, [](void** lanes) {
    for (int i = 0; i < 4; ++i) {
      uint16_t matrix[8][8];
      for (int r = 0; r < 8; ++r) std::memcpy(matrix[r], ((Loaded*)lanes[8 * i + r])->row, 16);
      for (int t = 0; t < 32; ++t) {
        const int r = t / 4, c = t % 4 * 2;
        const unsigned low = TURNED ? matrix[c][r] : matrix[r][c], high = TURNED ? matrix[c + 1][r] : matrix[r][c + 1];
        (*((Loaded*)lanes[t])->to)[i] = low | high << 16;
      }
    }
  });
}

inline float hi_wide(__half, uint16_t bits) {
  __half x;
  std::memcpy(&x, &bits, 2);
  return __half2float(x);
}
inline float hi_wide(__nv_bfloat16, uint16_t bits) { return __bfloat162float({bits}); }

struct Multiplied { float (*sum)[4]; const unsigned *left, *right; };
template <class T> __attribute__((optimize("O2"))) void hi_multiply(void** lanes) {
  float a[16][16], b[16][8];
  for (int t = 0; t < 32; ++t) {
    const Multiplied& mine = *(Multiplied*)lanes[t];
    const int group = t >> 2, place = t & 3;
    for (int i = 0; i < 8; ++i) {
      const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8, column = place * 2 + (i & 1) + (i < 4 ? 0 : 8);
      a[row][column] = hi_wide(T(), (uint16_t)(mine.left[i / 2] >> (i & 1) * 16));
    }
    for (int i = 0; i < 4; ++i) {
      b[place * 2 + (i & 1) + (i < 2 ? 0 : 8)][group] = hi_wide(T(), (uint16_t)(mine.right[i / 2] >> (i & 1) * 16));
    }
  }
  for (int t = 0; t < 32; ++t) {
    for (int i = 0; i < 4; ++i) {
      const int row = (t >> 2) + (i < 2 ? 0 : 8), column = (t & 3) * 2 + (i & 1);
      float& sum = (*((Multiplied*)lanes[t])->sum)[i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
    }
  }
}
template <class T> void hi_mma(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1) {
  const unsigned right[2] = {right0, right1};
  Multiplied mine = {&sum, left, right};
  hi_together(&mine, hi_multiply<T>);
}

template <class T> uint16_t hi_narrow(float x);
template <> inline uint16_t hi_narrow<__half>(float x) {
  const __half made = __float2half_rn(x);
  uint16_t bits;
  std::memcpy(&bits, &made, 2);
  return bits;
}
template <> inline uint16_t hi_narrow<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x).v; }
template <class T> unsigned hi_pair(float low, float high) {
  return hi_narrow<T>(low) | (unsigned)hi_narrow<T>(high) << 16;
}
template <int N> void hi_put(void* to, const unsigned (&from)[N]) {
  if ((uintptr_t)to % (4 * N)) stuck = true;
  std::memcpy(to, from, 4 * N);
}
inline void hi_four(float* to, const float (&from)[4]) {
  if ((uintptr_t)to % 16) stuck = true;
  std::memcpy(to, from, 16);
}
inline float hi_exp2(float x) { return exp2f(x); }
