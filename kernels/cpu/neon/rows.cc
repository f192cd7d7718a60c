#include "kernels/cpu/neon/exp.h"
#include "kernels/cpu/neon/neon.h"
#include "kernels/cpu/neon/vector.h"
#include "kernels/cpu/row_loops.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE float32x4_t SwiGlu4(float32x4_t gate, float32x4_t up) {
  const float32x4_t divisor = vaddq_f32(vdupq_n_f32(1.0f), Exp4(vnegq_f32(gate)));
  return vmulq_f32(vdivq_f32(gate, divisor), up);
}

BATON_INLINE uint16x4_t ToHalf4(float32x4_t x) {
  x = vminq_f32(vdupq_n_f32(65504.0f), x);  // NaN stays
  x = vmaxq_f32(vdupq_n_f32(-65504.0f), x);
  return vreinterpret_u16_f16(vcvt_f16_f32(x));
}

}  // namespace

void NeonRmsNorm(const float* x, const float* gain, size_t n, float eps, float* out) {
  NormRow(x, gain, n, eps, out);
}

void NeonRotateNeighbours(const float* cos, const float* sin, size_t pairs, float* head) {
  RotatePairs<2>(cos, sin, pairs, head, 1);
}

void NeonRotateHalves(const float* cos, const float* sin, size_t pairs, float* head) {
  RotatePairs<1>(cos, sin, pairs, head, pairs);
}

void NeonSwiGlu(const float* gate, const float* up, size_t n, float* out) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) vst1q_f32(out + i, SwiGlu4(vld1q_f32(gate + i), vld1q_f32(up + i)));
  for (; i < n; ++i) {
    out[i] = vgetq_lane_f32(SwiGlu4(vdupq_n_f32(gate[i]), vdupq_n_f32(up[i])), 0);
  }
}

void NeonToHalf(const float* x, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) vst1_u16(out + i, ToHalf4(vld1q_f32(x + i)));
  for (; i < n; ++i) out[i] = vget_lane_u16(ToHalf4(vdupq_n_f32(x[i])), 0);
}

}  // namespace baton::kernels::cpu
