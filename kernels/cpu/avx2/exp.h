// Numerics v3's exponential in eight lanes: scalar/exp.h, operation by operation.
#ifndef BATON_KERNELS_CPU_AVX2_EXP_H_
#define BATON_KERNELS_CPU_AVX2_EXP_H_

#include <immintrin.h>

#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/exp_constants.h"

namespace baton::kernels::cpu {
namespace {

// Of numbers up to kExpMax and NaN.
BATON_INLINE __m256 ExpOfSmall8(__m256 x) {
  const __m256 vanishes = _mm256_cmp_ps(x, _mm256_set1_ps(kExpMin), _CMP_LT_OQ);
  const __m256 magic = _mm256_set1_ps(kRoundMagic);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(kLog2E), magic);
  const __m256 n = _mm256_sub_ps(shifted, magic);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2High), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Low), r);
  __m256 y = _mm256_set1_ps(kExpPolynomial[0]);
  UNROLL for (int i = 1; i < 6; ++i) y = _mm256_fmadd_ps(y, r, _mm256_set1_ps(kExpPolynomial[i]));
  y = _mm256_fmadd_ps(y, _mm256_mul_ps(r, r), r);
  y = _mm256_add_ps(y, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23),
                                            _mm256_set1_epi32(0x3f800000));
  y = _mm256_mul_ps(y, _mm256_castsi256_ps(exponent));
  return _mm256_andnot_ps(vanishes, y);
}

BATON_INLINE __m256 Exp8(__m256 x) {
  const __m256 overflows = _mm256_cmp_ps(x, _mm256_set1_ps(kExpMax), _CMP_GT_OQ);
  return _mm256_blendv_ps(ExpOfSmall8(x), _mm256_set1_ps(__builtin_inff()), overflows);
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX2_EXP_H_
