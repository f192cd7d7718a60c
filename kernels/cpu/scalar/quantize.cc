#include <bit>
#include <limits>

#include "kernels/cpu/exp_constants.h"
#include "kernels/cpu/scalar/scalar.h"

namespace baton::kernels::cpu {
namespace {

// As integers, magnitudes order like floats, with infinities and NaN above all numbers.
uint32_t LargestMagnitude(const float* x) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < kBlock; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

int32_t RoundToEven(float x) {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(x + kRoundMagic) - 0x4b400000u);
}

// Returns the scale; *sum is that of the quantised values.
template <typename Q>
float QuantizeBlock(const float* x, Q* q, int32_t* sum) {
  constexpr auto kLimit = static_cast<float>(std::numeric_limits<Q>::max());
  const uint32_t bits = LargestMagnitude(x);
  const float largest = std::bit_cast<float>(bits);
  const bool finite = bits < 0x7f800000u;
  const float inverse = finite && largest >= kTiny ? kLimit / largest : 0.0f;
  *sum = 0;
  for (uint32_t i = 0; i < kBlock; ++i) {
    const int32_t value = inverse == 0.0f ? 0 : RoundToEven(x[i] * inverse);
    q[i] = static_cast<Q>(value);
    *sum += value;
  }
  if (!finite) return std::numeric_limits<float>::quiet_NaN();
  return inverse == 0.0f ? 0.0f : largest / kLimit;
}

template <typename Q>
void Quantize(const QuantizeRows<Q>& args) {
  for (uint32_t r = 0; r < args.rows; ++r) {
    for (uint32_t b = 0; b < args.blocks; ++b) {
      int32_t sum;
      const float scale = QuantizeBlock(args.x + r * args.x_stride + b * kBlock,
                                        args.q + r * args.q_stride + b * kBlock, &sum);
      args.scale[r * args.scale_stride + b] = scale;
      if (args.scaled_sum != nullptr) {
        args.scaled_sum[r * args.scale_stride + b] = scale * static_cast<float>(sum);
      }
      if (args.centre != nullptr) args.centre[r * args.scale_stride + b] = -8 * sum;
    }
  }
}

}  // namespace

void ScalarQuantizeInt8(const QuantizeRows<int8_t>& args) { Quantize(args); }
void ScalarQuantizeInt16(const QuantizeRows<int16_t>& args) { Quantize(args); }

}  // namespace baton::kernels::cpu
