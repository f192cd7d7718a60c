#include <immintrin.h>

#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/exp_constants.h"
#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE float Float(uint32_t bits) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
}

constexpr float LimitOf(int8_t) { return 127.0f; }
constexpr float LimitOf(int16_t) { return 32767.0f; }

BATON_INLINE void Store16(int8_t* q, __m512i v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm512_cvtepi32_epi8(v));
}
BATON_INLINE void Store16(int16_t* q, __m512i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm512_cvtepi32_epi16(v));
}

// Returns the scale; *sum is that of the quantised values.
template <typename Q>
BATON_INLINE float QuantizeBlock(const float* x, Q* q, int32_t* sum) {
  constexpr float kLimit = LimitOf(Q{});
  const __m512i magnitude_bits = _mm512_set1_epi32(0x7fffffff);
  const __m512 low = _mm512_loadu_ps(x);
  const __m512 high = _mm512_loadu_ps(x + 16);
  const uint32_t bits = _mm512_reduce_max_epu32(
      _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude_bits),
                       _mm512_and_si512(_mm512_castps_si512(high), magnitude_bits)));
  const float largest = Float(bits);
  const bool finite = bits < 0x7f800000u;
  const bool quantizes = finite && largest >= kTiny;
  const __mmask16 kept = quantizes ? 0xffff : 0;
  const __m512 inverse = _mm512_set1_ps(kLimit / largest);
  const __m512i low_q = _mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(low, inverse));
  const __m512i high_q = _mm512_maskz_cvtps_epi32(kept, _mm512_mul_ps(high, inverse));
  Store16(q, low_q);
  Store16(q + 16, high_q);
  *sum = _mm512_reduce_add_epi32(_mm512_add_epi32(low_q, high_q));
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

void Avx512QuantizeInt8(const QuantizeRows<int8_t>& args) { Quantize(args); }
void Avx512QuantizeInt16(const QuantizeRows<int16_t>& args) { Quantize(args); }

}  // namespace baton::kernels::cpu
