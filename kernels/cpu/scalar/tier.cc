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
                                 .dense_int8 = ScalarDenseInt8,
                                 .pair_half = nullptr,
                                 .pair_bfloat16 = nullptr,
                                 .pair_float = nullptr,
                                 .quantize_int8 = ScalarQuantizeInt8,
                                 .quantize_int16 = ScalarQuantizeInt16,
                                 .rms_norm = ScalarRmsNorm,
                                 .rotate_neighbours = ScalarRotateNeighbours,
                                 .rotate_halves = ScalarRotateHalves,
                                 .swiglu = ScalarSwiGlu,
                                 .widen_half = ScalarWidenHalf,
                                 .widen_int8 = ScalarWidenInt8,
                                 .to_half = ScalarToHalf,
                                 .softmax = ScalarSoftmax,
                                 .merge = ScalarMerge};
  return kTier;
}

}  // namespace baton::kernels::cpu
