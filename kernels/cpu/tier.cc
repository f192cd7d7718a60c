#include "kernels/cpu/tier.h"

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/scalar/scalar.h"

namespace baton::kernels::cpu {

const Tier& ScalarTier() {
  static constexpr Tier kTier = {.name = "scalar",
                                 .linear_q4_1 = ScalarLinearQ4_1,
                                 .linear_q8_0 = ScalarLinearQ8_0,
                                 .dense_half = ScalarDenseHalf,
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
                                 .linear_q4_1 = Avx2LinearQ4_1,
                                 .linear_q8_0 = Avx2LinearQ8_0,
                                 .dense_half = Avx2DenseHalf,
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
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

}  // namespace baton::kernels::cpu
