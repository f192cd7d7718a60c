// Numerics v3's exponential, one value at a time.
#ifndef BATON_KERNELS_CPU_SCALAR_EXP_H_
#define BATON_KERNELS_CPU_SCALAR_EXP_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/exp_constants.h"

namespace baton::kernels::cpu {

inline float Exp(float x) {
  if (x < kExpMin) return 0.0f;
  if (x > kExpMax) return std::numeric_limits<float>::infinity();
  const float shifted = std::fmaf(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  float r = std::fmaf(n, -kLn2High, x);
  r = std::fmaf(n, -kLn2Low, r);
  float y = kExpPolynomial[0];
  for (int i = 1; i < 6; ++i) y = std::fmaf(y, r, kExpPolynomial[i]);
  y = std::fmaf(y, r * r, r) + 1.0f;
  const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) << 23) + 0x3f800000u;
  return y * std::bit_cast<float>(exponent);
}

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_SCALAR_EXP_H_
