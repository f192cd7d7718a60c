#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "kernels/cpu/neon/neon.h"
#include "kernels/cpu/scalar/scalar.h"
#include "kernels/cpu/tiers.h"

namespace baton::kernels::cpu {
namespace {

constexpr Tier kNeon = {.name = "neon",
                        .linear_q4_0 = NeonLinearQ4_0,
                        .linear_q4_1 = NeonLinearQ4_1,
                        .linear_q8_0 = NeonLinearQ8_0,
                        .dense_half = NeonDenseHalf,
                        .dense_bfloat16 = NeonDenseBFloat16,
                        .dense_float = NeonDenseFloat,
                        .dense_int8 = NeonDenseInt8,
                        .pair_half = NeonPairHalf,
                        .pair_bfloat16 = NeonPairBFloat16,
                        .pair_float = NeonPairFloat,
                        .quantize_int8 = NeonQuantizeInt8,
                        .quantize_int16 = NeonQuantizeInt16,
                        .rms_norm = NeonRmsNorm,
                        .rotate_neighbours = NeonRotateNeighbours,
                        .rotate_halves = NeonRotateHalves,
                        .swiglu = NeonSwiGlu,
                        .widen_half = NeonWidenHalf,
                        .widen_int8 = NeonWidenInt8,
                        .to_half = NeonToHalf,
                        .softmax = NeonSoftmax,
                        .merge = NeonMerge};

}  // namespace

std::span<const TierEntry> Tiers() {
  static const bool kHasDotProducts = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  static const TierEntry kTiers[] = {{&kNeon, kHasDotProducts, "the dot products of Armv8.2"},
                                     {&ScalarTier(), true, ""}};
  return kTiers;
}

}  // namespace baton::kernels::cpu
