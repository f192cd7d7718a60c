// The vector of the dot-product kernels with 128 bits, and what else the NEON kernels share.
#ifndef BATON_KERNELS_CPU_NEON_VECTOR_H_
#define BATON_KERNELS_CPU_NEON_VECTOR_H_

#include <arm_neon.h>

#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE float32x4_t Load4(const float* p) { return vld1q_f32(p); }
BATON_INLINE float32x4_t Load4(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

BATON_INLINE float32x4_t Load4(const BFloat16* p) {
  const uint16x4_t bits = vld1_u16(reinterpret_cast<const uint16_t*>(p));
  return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

BATON_INLINE float32x4_t Load4(const int8_t* p) {
  uint32_t bytes;
  __builtin_memcpy(&bytes, p, sizeof bytes);
  const int16x8_t shorts = vmovl_s8(vcreate_s8(bytes));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(shorts)));
}

struct Vector128 {
  using Ints = int32x4_t;
  using Floats = float32x4_t;
  // Products of the first and of the last two lanes, not yet summed in pairs.
  struct ShortDots {
    int32x4_t first;
    int32x4_t last;
  };
  static constexpr int kLanes = 4;
  static constexpr int kParts = 4;
  static constexpr int kTileRows = 4;

  static BATON_INLINE Ints ZeroInts() { return vdupq_n_s32(0); }
  static BATON_INLINE ShortDots ZeroShortDots() { return {ZeroInts(), ZeroInts()}; }
  static BATON_INLINE Ints Load(const void* p) {
    return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
  }
  // Eight signed bytes as int16.
  static BATON_INLINE Ints LoadWidened(const void* p) {
    return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(static_cast<const int8_t*>(p))));
  }
  static BATON_INLINE Ints Broadcast(const int32_t* p) { return vdupq_n_s32(*p); }
  static BATON_INLINE Ints LowNibbles(Ints v) {
    return vreinterpretq_s32_u8(vandq_u8(vreinterpretq_u8_s32(v), vdupq_n_u8(15)));
  }
  static BATON_INLINE Ints HighNibbles(Ints v) {
    return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(v), 4));
  }
  // Nibbles are the same number signed and unsigned.
  static BATON_INLINE Ints DotBytes(Ints sum, Ints nibbles, const int8_t* x) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(nibbles), vreinterpretq_s8_s32(FourBytes(x)));
  }
  static BATON_INLINE ShortDots DotShorts(const ShortDots& sum, Ints shorts, const int16_t* x) {
    const int16x8_t w = vreinterpretq_s16_s32(shorts);
    const int16x8_t xs = vreinterpretq_s16_s32(FourBytes(x));
    return {vmlal_s16(sum.first, vget_low_s16(w), vget_low_s16(xs)),
            vmlal_high_s16(sum.last, w, xs)};
  }
  // The four bytes at p in every lane.
  static BATON_INLINE Ints FourBytes(const void* p) {
    int32_t value;
    __builtin_memcpy(&value, p, sizeof value);
    return vdupq_n_s32(value);
  }

  static BATON_INLINE Floats LoadHalf(const uint16_t* p) { return Load4(p); }
  static BATON_INLINE Floats Broadcast(const float* p) { return vdupq_n_f32(*p); }
  static BATON_INLINE Floats Multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
  static BATON_INLINE Floats Fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static BATON_INLINE Floats ToFloat(Ints v) { return vcvtq_f32_s32(v); }
  static BATON_INLINE Floats ToFloat(const ShortDots& v) {
    return vcvtq_f32_s32(vpaddq_s32(v.first, v.last));
  }

  template <int kRows>
  static BATON_INLINE void Zero(Floats (&sum)[kRows][kParts]) {
    UNROLL for (int r = 0; r < kRows; ++r) {
      UNROLL for (int part = 0; part < kParts; ++part) sum[r][part] = vdupq_n_f32(0);
    }
  }
  template <int kRows, int kAll>
  static BATON_INLINE void StoreRows(float* out, size_t stride, const Floats (&sum)[kRows][kAll],
                                     bool add) {
    UNROLL for (int r = 0; r < kRows; ++r) {
      UNROLL for (int part = 0; part < kAll; ++part) {
        float* p = out + r * stride + kLanes * part;
        vst1q_f32(p, add ? vaddq_f32(vld1q_f32(p), sum[r][part]) : sum[r][part]);
      }
    }
  }
};

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_NEON_VECTOR_H_
