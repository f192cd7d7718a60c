// What the AVX2 kernels share: loads and stores.
#ifndef BATON_KERNELS_CPU_AVX2_TILES_H_
#define BATON_KERNELS_CPU_AVX2_TILES_H_

#include <immintrin.h>

#include "kernels/cpu/tier.h"
#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE __m256i LoadInts(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

BATON_INLINE __m128i LoadInts16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

BATON_INLINE __m256 LoadHalf8(const uint16_t* p) { return _mm256_cvtph_ps(LoadInts16(p)); }
BATON_INLINE __m256 Load8(const uint16_t* p) { return LoadHalf8(p); }
BATON_INLINE __m256 Load8(const BFloat16* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadInts16(p)), 16));
}
BATON_INLINE __m256 Load8(const float* p) { return _mm256_loadu_ps(p); }
BATON_INLINE __m256 Load8(const int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

// The four bytes at p in every lane.
BATON_INLINE __m256i Broadcast4(const void* p) {
  return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
}

// Sums that begin with zero, or with what is in `out`.
template <int kRows, int kParts>
BATON_INLINE void StartRows(const float* out, size_t stride, bool continued,
                            __m256 (&sum)[kRows][kParts]) {
  UNROLL for (int r = 0; r < kRows; ++r) {
    UNROLL for (int h = 0; h < kParts; ++h) {
      sum[r][h] = continued ? _mm256_loadu_ps(out + r * stride + 8 * h) : _mm256_setzero_ps();
    }
  }
}

template <int kRows, int kParts>
BATON_INLINE void StoreRows(float* out, size_t stride, const __m256 (&sum)[kRows][kParts],
                            bool add) {
  UNROLL for (int r = 0; r < kRows; ++r) {
    UNROLL for (int h = 0; h < kParts; ++h) {
      float* p = out + r * stride + 8 * h;
      _mm256_storeu_ps(p, add ? _mm256_add_ps(_mm256_loadu_ps(p), sum[r][h]) : sum[r][h]);
    }
  }
}

// The empty asm keeps GCC from re-associating integer sums, which would spill every product.
BATON_INLINE void Accumulate16(__m256i& sum, __m256i product) {
  sum = _mm256_add_epi16(sum, product);
  asm("" : "+x"(sum));
}
BATON_INLINE void Accumulate32(__m256i& sum, __m256i product) {
  sum = _mm256_add_epi32(sum, product);
  asm("" : "+x"(sum));
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX2_TILES_H_
