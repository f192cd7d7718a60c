#include <immintrin.h>

#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/avx512/exp.h"
#include "kernels/cpu/avx512/vector.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE __m512 SwiGlu16(__m512 gate, __m512 up) {
  const __m512 negated = _mm512_xor_ps(gate, _mm512_set1_ps(-0.0f));
  const __m512 divisor = _mm512_add_ps(_mm512_set1_ps(1.0f), Exp16(negated));
  return _mm512_mul_ps(_mm512_div_ps(gate, divisor), up);
}

BATON_INLINE __m256i ToHalf16(__m512 x) {
  const __m512 limit = _mm512_set1_ps(65504.0f);
  x = _mm512_min_ps(limit, x);  // NaN stays
  x = _mm512_max_ps(_mm512_set1_ps(-65504.0f), x);
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

}  // namespace

void Avx512SwiGlu(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = LanesBelow(n - i);
    const __m512 value =
        SwiGlu16(_mm512_maskz_loadu_ps(lanes, gate + i), _mm512_maskz_loadu_ps(lanes, up + i));
    _mm512_mask_storeu_ps(out + i, lanes, value);
  }
}

void Avx512ToHalf(const float* x, size_t n, uint16_t* out) {
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = LanesBelow(n - i);
    _mm256_mask_storeu_epi16(out + i, lanes, ToHalf16(_mm512_maskz_loadu_ps(lanes, x + i)));
  }
}

}  // namespace baton::kernels::cpu
