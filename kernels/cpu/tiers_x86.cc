#include <cpuid.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/avxvnni/avxvnni.h"
#include "kernels/cpu/scalar/scalar.h"
#include "kernels/cpu/tiers.h"

namespace baton::kernels::cpu {
namespace {

constexpr Tier kAvx2 = {.name = "avx2",
                        .linear_q4_0 = Avx2LinearQ4_0,
                        .linear_q4_1 = Avx2LinearQ4_1,
                        .linear_q8_0 = Avx2LinearQ8_0,
                        .dense_half = Avx2DenseHalf,
                        .dense_bfloat16 = Avx2DenseBFloat16,
                        .dense_float = Avx2DenseFloat,
                        .dense_int8 = Avx2DenseInt8,
                        .pair_half = Avx2PairHalf,
                        .pair_bfloat16 = Avx2PairBFloat16,
                        .pair_float = Avx2PairFloat,
                        .quantize_int8 = Avx2QuantizeInt8,
                        .quantize_int16 = Avx2QuantizeInt16,
                        .rms_norm = Avx2RmsNorm,
                        .rotate_neighbours = Avx2RotateNeighbours,
                        .rotate_halves = Avx2RotateHalves,
                        .swiglu = Avx2SwiGlu,
                        .widen_half = Avx2WidenHalf,
                        .widen_int8 = Avx2WidenInt8,
                        .to_half = Avx2ToHalf,
                        .softmax = Avx2Softmax,
                        .merge = Avx2Merge};

// What a tier above AVX2 does not name it does as AVX2 does.
constexpr Tier AvxVnni() {
  Tier tier = kAvx2;
  tier.name = "avxvnni";
  tier.linear_q4_0 = AvxVnniLinearQ4_0;
  tier.linear_q4_1 = AvxVnniLinearQ4_1;
  tier.linear_q8_0 = AvxVnniLinearQ8_0;
  return tier;
}
constexpr Tier kAvxVnni = AvxVnni();

constexpr Tier Avx512() {
  Tier tier = kAvx2;
  tier.name = "avx512";
  tier.linear_q4_0 = Avx512LinearQ4_0;
  tier.linear_q4_1 = Avx512LinearQ4_1;
  tier.linear_q8_0 = Avx512LinearQ8_0;
  tier.pair_half = Avx512PairHalf;
  tier.pair_bfloat16 = Avx512PairBFloat16;
  tier.pair_float = Avx512PairFloat;
  tier.dense_half = Avx512DenseHalf;
  tier.dense_bfloat16 = Avx512DenseBFloat16;
  tier.dense_float = Avx512DenseFloat;
  tier.dense_int8 = Avx512DenseInt8;
  tier.quantize_int8 = Avx512QuantizeInt8;
  tier.quantize_int16 = Avx512QuantizeInt16;
  tier.swiglu = Avx512SwiGlu;
  tier.widen_half = nullptr;
  tier.widen_int8 = Avx512WidenInt8;
  tier.to_half = Avx512ToHalf;
  tier.softmax = Avx512Softmax;
  tier.merge = Avx512Merge;
  return tier;
}
constexpr Tier kAvx512 = Avx512();

bool HasAvx2() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  // clang 14 cannot be asked for "f16c" by name. The other two include the system's consent.
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool HasAvxVnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  // clang 14 does not know this name either. It has the registers of AVX2 and no consent of its
  // own.
  constexpr unsigned kAvxVnniBit = 1u << 4;
  return HasAvx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & kAvxVnniBit) != 0;
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace

std::span<const TierEntry> Tiers() {
  static const TierEntry kTiers[] = {{&kAvx512, HasAvx512(), "AVX-512 F, BW, DQ, VL and VNNI"},
                                     {&kAvxVnni, HasAvxVnni(), "AVX2, FMA, F16C and AVX-VNNI"},
                                     {&kAvx2, HasAvx2(), "AVX2, FMA and F16C"},
                                     {&ScalarTier(), true, ""}};
  return kTiers;
}

}  // namespace baton::kernels::cpu
