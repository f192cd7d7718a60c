// Numerics v3's exponential in four lanes: scalar/exp.h, operation by operation.
#ifndef BATON_KERNELS_CPU_NEON_EXP_H_
#define BATON_KERNELS_CPU_NEON_EXP_H_

#include <arm_neon.h>

#include "kernels/cpu/exp_constants.h"
#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE float32x4_t Exp4(float32x4_t x) {
  const uint32x4_t vanishes = vcltq_f32(x, vdupq_n_f32(kExpMin));
  const uint32x4_t overflows = vcgtq_f32(x, vdupq_n_f32(kExpMax));
  const float32x4_t magic = vdupq_n_f32(kRoundMagic);
  const float32x4_t shifted = vfmaq_f32(magic, x, vdupq_n_f32(kLog2E));
  const float32x4_t n = vsubq_f32(shifted, magic);
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-kLn2High));
  r = vfmaq_f32(r, n, vdupq_n_f32(-kLn2Low));
  float32x4_t y = vdupq_n_f32(kExpPolynomial[0]);
  UNROLL for (int i = 1; i < 6; ++i) y = vfmaq_f32(vdupq_n_f32(kExpPolynomial[i]), y, r);
  y = vfmaq_f32(r, y, vmulq_f32(r, r));
  y = vaddq_f32(y, vdupq_n_f32(1.0f));
  const uint32x4_t exponent =
      vaddq_u32(vshlq_n_u32(vreinterpretq_u32_f32(shifted), 23), vdupq_n_u32(0x3f800000u));
  y = vmulq_f32(y, vreinterpretq_f32_u32(exponent));
  y = vbslq_f32(overflows, vdupq_n_f32(__builtin_inff()), y);
  return vbslq_f32(vanishes, vdupq_n_f32(0), y);
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_NEON_EXP_H_
