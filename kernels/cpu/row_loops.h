// Work on rows that has no instructions of its own: plain loops, which every tier compiles for its
// instruction set.
#ifndef BATON_KERNELS_CPU_ROW_LOOPS_H_
#define BATON_KERNELS_CPU_ROW_LOOPS_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/tile_loop.h"

// Internal linkage for everything, as in tile_loop.h.
namespace baton::kernels::cpu {
namespace {

// The one way in which a row is summed: value i goes to lane i mod 16, lanes are joined by a tree.
constexpr uint32_t kLanes = 16;

// Overwrites the lanes. Only the widths are unrolled: single additions would not become vectors.
BATON_INLINE float SumOfLanes(float (&lanes)[kLanes]) {
  UNROLL for (uint32_t width = kLanes / 2; width > 0; width /= 2) {
    for (uint32_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

BATON_INLINE float SumOfSquares(const float* x, size_t n) {
  float lanes[kLanes] = {};
  const size_t whole = n / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  for (size_t i = whole; i < n; ++i) lanes[i - whole] += x[i] * x[i];
  return SumOfLanes(lanes);
}

BATON_INLINE void NormRow(const float* __restrict x, const float* __restrict gain, size_t n,
                          float eps, float* __restrict out) {
  const float mean = SumOfSquares(x, n) / static_cast<float>(n);
  const float inverse = 1.0f / __builtin_sqrtf(mean + eps);
  for (size_t i = 0; i < n; ++i) out[i] = x[i] * inverse * gain[i];
}

// Pair i is head[i * kStep] and head[i * kStep + second]. One array, not two pointers: so compilers
// see that neighbours fill it, and take them apart in registers.
template <size_t kStep>
BATON_INLINE void RotatePairs(const float* __restrict cos, const float* __restrict sin,
                              size_t pairs, float* __restrict head, size_t second) {
  for (size_t i = 0; i < pairs; ++i) {
    const float x = head[i * kStep];
    const float y = head[i * kStep + second];
    head[i * kStep] = x * cos[i] - y * sin[i];
    head[i * kStep + second] = x * sin[i] + y * cos[i];
  }
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_ROW_LOOPS_H_
