#include <immintrin.h>

#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/avx512/exp.h"
#include "kernels/cpu/avx512/vector.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE float MaxOfLanes(__m512 v) {
  __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  m = _mm_max_ss(m, _mm_movehdup_ps(m));
  return _mm_cvtss_f32(m);
}

// The tree of row_loops.h.
BATON_INLINE float SumOfLanes16(__m512 v) {
  const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  s = _mm_add_ss(s, _mm_movehdup_ps(s));
  return _mm_cvtss_f32(s);
}

BATON_INLINE float ScaledMax(const float* scores, uint32_t n, __m512 scale) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 max = lowest;
  for (uint32_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = LanesBelow(n - i);
    const __m512 s = _mm512_mask_mul_ps(lowest, lanes, _mm512_loadu_ps(scores + i), scale);
    max = _mm512_max_ps(s, max);
  }
  return MaxOfLanes(max);
}

}  // namespace

SoftmaxState Avx512Softmax(float* scores, uint32_t n, float scale) {
  const __m512 scale16 = _mm512_set1_ps(scale);
  const float max = ScaledMax(scores, n, scale16);
  const __m512 max16 = _mm512_set1_ps(max);
  __m512 sum = _mm512_setzero_ps();
  for (uint32_t i = 0; i < n; i += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(scores + i), scale16);
    const __m512 p = _mm512_maskz_mov_ps(LanesBelow(n - i), Exp16(_mm512_sub_ps(scaled, max16)));
    _mm512_storeu_ps(scores + i, p);
    sum = _mm512_add_ps(sum, p);
  }
  return {max, SumOfLanes16(sum)};
}

void Avx512Merge(SoftmaxState* state, float* values, const SoftmaxState& next,
                 const float* next_values, uint32_t n) {
  const float max = next.max > state->max ? next.max : state->max;
  const __m128 gaps = _mm_setr_ps(state->max - max, next.max - max, 0, 0);
  const __m128 factors = _mm512_castps512_ps128(Exp16(_mm512_zextps128_ps512(gaps)));
  const __m128 keep = factors;
  const __m128 add = _mm_movehdup_ps(factors);
  state->max = max;
  state->sum = _mm_cvtss_f32(
      _mm_fmadd_ss(_mm_set_ss(state->sum), keep, _mm_mul_ss(_mm_set_ss(next.sum), add)));
  const __m512 keep16 = _mm512_broadcastss_ps(keep);
  const __m512 add16 = _mm512_broadcastss_ps(add);
  for (uint32_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = LanesBelow(n - i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, next_values + i), add16);
    const __m512 joined = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(lanes, values + i), keep16, scaled);
    _mm512_mask_storeu_ps(values + i, lanes, joined);
  }
}

}  // namespace baton::kernels::cpu
