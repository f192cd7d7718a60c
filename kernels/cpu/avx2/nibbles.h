// Dot products of unsigned nibbles with int8 activations, which Q4_0 and Q4_1 share.
#ifndef BATON_KERNELS_CPU_AVX2_NIBBLES_H_
#define BATON_KERNELS_CPU_AVX2_NIBBLES_H_

#include <immintrin.h>

#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/packed.h"

namespace baton::kernels::cpu {
namespace {

// One block times kRows rows; the sum of an output is that of a pair of int16. Weights stay
// unsigned and activations signed, so one maddubs multiplies a nibble pair exactly, and eight of
// them fit in int16: 8 * 2 * 15 * 127 = 30480.
template <int kRows>
BATON_INLINE void NibbleDots(const PanelNibbles& nibbles, const int8_t* q, size_t q_stride,
                             __m256i (&dot)[kRows][2]) {
  const __m256i low_bits = _mm256_set1_epi8(15);
  UNROLL for (int r = 0; r < kRows; ++r) dot[r][0] = dot[r][1] = _mm256_setzero_si256();
  UNROLL for (int g = 0; g < 4; ++g) {
    UNROLL for (int h = 0; h < 2; ++h) {
      const __m256i bytes = LoadInts(nibbles[g][8 * h]);
      const __m256i low = _mm256_and_si256(bytes, low_bits);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low_bits);
      UNROLL for (int r = 0; r < kRows; ++r) {
        const int8_t* x = q + r * q_stride + 4 * g;
        Accumulate16(dot[r][h], _mm256_maddubs_epi16(low, Broadcast4(x)));
        Accumulate16(dot[r][h], _mm256_maddubs_epi16(high, Broadcast4(x + 16)));
      }
    }
  }
}

// A block widens once.
BATON_INLINE __m256i SumOfPairs(__m256i dot) {
  return _mm256_madd_epi16(dot, _mm256_set1_epi16(1));
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX2_NIBBLES_H_
