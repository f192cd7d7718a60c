#include "kernels/cpu/neon/exp.h"
#include "kernels/cpu/neon/neon.h"
#include "kernels/cpu/neon/vector.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE uint32x4_t LanesBelow(uint32_t n, uint32_t first) {
  const uint32_t lanes[4] = {first, first + 1, first + 2, first + 3};
  return vcltq_u32(vld1q_u32(lanes), vdupq_n_u32(n));
}

// The tree of row_loops.h.
BATON_INLINE float SumOfLanes16(const float32x4_t (&sum)[4]) {
  const float32x4_t s = vaddq_f32(vaddq_f32(sum[0], sum[2]), vaddq_f32(sum[1], sum[3]));
  const float32x2_t pair = vadd_f32(vget_low_f32(s), vget_high_f32(s));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

// Scales in place; lanes from n on become -inf, whatever they held. A NaN is not the maximum.
BATON_INLINE float ScaleAndMax(float* scores, uint32_t n, float scale) {
  const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
  float32x4_t max = lowest;
  for (uint32_t i = 0; i < n; i += 4) {
    float32x4_t s = vmulq_f32(vld1q_f32(scores + i), vdupq_n_f32(scale));
    s = vbslq_f32(LanesBelow(n, i), s, lowest);
    vst1q_f32(scores + i, s);
    max = vmaxnmq_f32(s, max);
  }
  return vmaxnmvq_f32(max);
}

}  // namespace

SoftmaxState NeonSoftmax(float* scores, uint32_t n, float scale) {
  const float max = ScaleAndMax(scores, n, scale);
  float32x4_t sum[4] = {};
  for (uint32_t i = 0; i < n; i += 16) {
    UNROLL for (uint32_t part = 0; part < 4; ++part) {
      const uint32_t at = i + 4 * part;
      const float32x4_t e = Exp4(vsubq_f32(vld1q_f32(scores + at), vdupq_n_f32(max)));
      const float32x4_t p = vbslq_f32(LanesBelow(n, at), e, vdupq_n_f32(0));
      vst1q_f32(scores + at, p);
      sum[part] = vaddq_f32(sum[part], p);
    }
  }
  return {max, SumOfLanes16(sum)};
}

void NeonMerge(SoftmaxState* state, float* values, const SoftmaxState& next,
               const float* next_values, uint32_t n) {
  const float max = next.max > state->max ? next.max : state->max;
  const float gaps[4] = {state->max - max, next.max - max, 0, 0};
  const float32x4_t factors = Exp4(vld1q_f32(gaps));
  const float keep = vgetq_lane_f32(factors, 0);
  const float add = vgetq_lane_f32(factors, 1);
  state->max = max;
  state->sum = __builtin_fmaf(state->sum, keep, next.sum * add);
  uint32_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float32x4_t scaled = vmulq_f32(vld1q_f32(next_values + i), vdupq_n_f32(add));
    vst1q_f32(values + i, vfmaq_f32(scaled, vld1q_f32(values + i), vdupq_n_f32(keep)));
  }
  for (; i < n; ++i) values[i] = __builtin_fmaf(values[i], keep, next_values[i] * add);
}

}  // namespace baton::kernels::cpu
