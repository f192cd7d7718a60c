#include "kernels/cpu/tier.h"

#include <cpuid.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/scalar/scalar.h"

namespace baton::kernels::cpu {

const Tier& ScalarTier() {
  static constexpr Tier kTier = {.name = "scalar",
                                 .linear_q4_0 = ScalarLinearQ4_0,
                                 .linear_q4_1 = ScalarLinearQ4_1,
                                 .linear_q8_0 = ScalarLinearQ8_0,
                                 .dense_half = ScalarDenseHalf,
                                 .dense_bfloat16 = ScalarDenseBFloat16,
                                 .dense_float = ScalarDenseFloat,
                                 .quantize_int8 = ScalarQuantizeInt8,
                                 .quantize_int16 = ScalarQuantizeInt16,
                                 .swiglu = ScalarSwiGlu,
                                 .to_half = ScalarToHalf,
                                 .softmax = ScalarSoftmax,
                                 .merge = ScalarMerge};
  return kTier;
}

const Tier& Avx2Tier() {
  static constexpr Tier kTier = {.name = "avx2",
                                 .linear_q4_0 = Avx2LinearQ4_0,
                                 .linear_q4_1 = Avx2LinearQ4_1,
                                 .linear_q8_0 = Avx2LinearQ8_0,
                                 .dense_half = Avx2DenseHalf,
                                 .dense_bfloat16 = Avx2DenseBFloat16,
                                 .dense_float = Avx2DenseFloat,
                                 .quantize_int8 = Avx2QuantizeInt8,
                                 .quantize_int16 = Avx2QuantizeInt16,
                                 .swiglu = Avx2SwiGlu,
                                 .to_half = Avx2ToHalf,
                                 .softmax = Avx2Softmax,
                                 .merge = Avx2Merge};
  return kTier;
}

bool CpuHasAvx2() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  // clang 14 cannot be asked for "f16c" by name. The other two include the system's consent.
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

}  // namespace baton::kernels::cpu
