#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/exp_constants.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE uint32_t LargestLane(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

BATON_INLINE int32_t LaneSum(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

BATON_INLINE float Float(uint32_t bits) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
}

constexpr float LimitOf(int8_t) { return 127.0f; }
constexpr float LimitOf(int16_t) { return 32767.0f; }

// v holds 32 integers in order.
BATON_INLINE void StoreBlock(int16_t* q, const __m256i (&v)[4]) {
  for (int half = 0; half < 2; ++half) {
    const __m256i packed = _mm256_packs_epi32(v[2 * half], v[2 * half + 1]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 16 * half),
                        _mm256_permute4x64_epi64(packed, 0xd8));
  }
}

BATON_INLINE void StoreBlock(int8_t* q, const __m256i (&v)[4]) {
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(packed, order));
}

template <typename Q>
BATON_INLINE float QuantizeBlock(const float* x, Q* q, int32_t* sum) {
  constexpr float kLimit = LimitOf(Q{});
  const __m256i magnitude_bits = _mm256_set1_epi32(0x7fffffff);
  __m256i largest_lanes = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i bits = _mm256_and_si256(LoadInts(x + 8 * i), magnitude_bits);
    largest_lanes = _mm256_max_epu32(largest_lanes, bits);
  }
  const uint32_t bits = LargestLane(largest_lanes);
  const bool finite = bits < 0x7f800000u;
  const float largest = Float(bits);
  __m256i v[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                  _mm256_setzero_si256()};
  const bool quantizes = finite && largest >= kTiny;
  if (quantizes) {
    const __m256 inverse = _mm256_set1_ps(kLimit / largest);
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    }
  }
  StoreBlock(q, v);
  *sum = LaneSum(_mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3])));
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

void Avx2QuantizeInt8(const QuantizeRows<int8_t>& args) { Quantize(args); }
void Avx2QuantizeInt16(const QuantizeRows<int16_t>& args) { Quantize(args); }

}  // namespace baton::kernels::cpu
