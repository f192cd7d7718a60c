// Numerics v3's exponential in sixteen lanes: scalar/exp.h, operation by operation.
#ifndef BATON_KERNELS_CPU_AVX512_EXP_H_
#define BATON_KERNELS_CPU_AVX512_EXP_H_

#include <immintrin.h>

#include "kernels/cpu/exp_constants.h"
#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE __m512 Exp16(__m512 x) {
  const __mmask16 remains = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpMin), _CMP_NLT_UQ);
  const __mmask16 overflows = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpMax), _CMP_GT_OQ);
  const __m512 magic = _mm512_set1_ps(kRoundMagic);
  const __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(kLog2E), magic);
  const __m512 n = _mm512_sub_ps(shifted, magic);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kLn2High), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kLn2Low), r);
  __m512 y = _mm512_set1_ps(kExpPolynomial[0]);
  UNROLL for (int i = 1; i < 6; ++i) y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(kExpPolynomial[i]));
  y = _mm512_fmadd_ps(y, _mm512_mul_ps(r, r), r);
  y = _mm512_add_ps(y, _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23),
                                            _mm512_set1_epi32(0x3f800000));
  y = _mm512_maskz_mul_ps(remains, y, _mm512_castsi512_ps(exponent));
  return _mm512_mask_blend_ps(overflows, y, _mm512_set1_ps(__builtin_inff()));
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX512_EXP_H_
