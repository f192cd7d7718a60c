#include "kernels/cpu/exp_constants.h"
#include "kernels/cpu/neon/neon.h"
#include "kernels/cpu/neon/vector.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE float Float(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr float LimitOf(int8_t) { return 127.0f; }
constexpr float LimitOf(int16_t) { return 32767.0f; }

BATON_INLINE void Store8(int16_t* q, int16x8_t v) { vst1q_s16(q, v); }
BATON_INLINE void Store8(int8_t* q, int16x8_t v) { vst1_s8(q, vmovn_s16(v)); }

// Returns the scale; *sum is that of the quantised values.
template <typename Q>
BATON_INLINE float QuantizeBlock(const float* x, Q* q, int32_t* sum) {
  constexpr float kLimit = LimitOf(Q{});
  uint32x4_t largest_lanes = vdupq_n_u32(0);
  UNROLL for (int i = 0; i < 8; ++i) {
    const uint32x4_t bits = vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + 4 * i)));
    largest_lanes = vmaxq_u32(largest_lanes, bits);
  }
  const uint32_t bits = vmaxvq_u32(largest_lanes);
  const bool finite = bits < 0x7f800000u;
  const float largest = Float(bits);
  const bool quantizes = finite && largest >= kTiny;
  int32x4_t v[8] = {};
  if (quantizes) {
    const float32x4_t inverse = vdupq_n_f32(kLimit / largest);
    UNROLL for (int i = 0; i < 8; ++i) {
      v[i] = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 4 * i), inverse));
    }
  }
  int32x4_t total = vdupq_n_s32(0);
  UNROLL for (int i = 0; i < 8; i += 2) {
    Store8(q + 4 * i, vcombine_s16(vmovn_s32(v[i]), vmovn_s32(v[i + 1])));
    total = vaddq_s32(total, vaddq_s32(v[i], v[i + 1]));
  }
  *sum = vaddvq_s32(total);
  if (!finite) return Float(0x7fc00000u);
  return quantizes ? largest / kLimit : 0.0f;
}

template <typename Q>
BATON_INLINE void Quantize(const QuantizeRows<Q>& args) {
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

void NeonQuantizeInt8(const QuantizeRows<int8_t>& args) { Quantize(args); }
void NeonQuantizeInt16(const QuantizeRows<int16_t>& args) { Quantize(args); }

}  // namespace baton::kernels::cpu
