// Numbers of 16 bits as floats. IEEE binary16 in plain integer arithmetic, with the bits that
// hardware conversion gives (round to nearest even, NaN kept quiet) except that a float beyond the
// range saturates at +-65504.
#ifndef BATON_KERNELS_HALF_H_
#define BATON_KERNELS_HALF_H_

#include <bit>
#include <cstdint>

namespace baton::kernels {

using Half = uint16_t;

inline constexpr float kHalfMax = 65504.0f;

inline float HalfToFloat(Half half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t rest = half & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinity, NaN
    const uint32_t quiet = rest > 0x7c00u ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | ((rest & 0x3ffu) << 13));
  }
  if (rest >= 0x400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  // Subnormal or zero: rest * 2^-24, exact.
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline Half FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<Half>((bits >> 16) & 0x8000u);
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return sign | 0x7e00u | static_cast<Half>((rest >> 13) & 0x3ffu);
  if (rest >= 0x477fe000u) return sign | 0x7bffu;
  if (rest >= 0x38800000u) {  // normal: drop 13 bits, round to even
    const uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
    return sign | static_cast<Half>((rounded - 0x38000000u) >> 13);
  }
  // Subnormal: adding 0.5 leaves rest * 2^24, rounded to even, in the low bits.
  const float shifted = std::bit_cast<float>(rest) + 0.5f;
  return sign | static_cast<Half>(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
}

// bfloat16 is the upper half of a float.
inline float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace baton::kernels

#endif  // BATON_KERNELS_HALF_H_
