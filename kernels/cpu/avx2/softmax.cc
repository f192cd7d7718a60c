#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/exp.h"
#include "kernels/cpu/avx2/tiles.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE __m256 LanesBelow(uint32_t n, uint32_t first) {
  const __m256i lane = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)),
                                        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane));
}

BATON_INLINE float MaxOfLanes(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  m = _mm_max_ss(m, _mm_movehdup_ps(m));
  return _mm_cvtss_f32(m);
}

// The tree of row_loops.h.
BATON_INLINE float SumOfLanes16(__m256 low, __m256 high) {
  const __m256 s8 = _mm256_add_ps(low, high);
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  s = _mm_add_ss(s, _mm_movehdup_ps(s));
  return _mm_cvtss_f32(s);
}

// Scales in place; in the last, unfilled vector the other lanes become -inf, whatever they held.
BATON_INLINE float ScaleAndMax(float* scores, uint32_t n, float scale) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  const __m256 factor = _mm256_set1_ps(scale);
  __m256 max = lowest;
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 s = _mm256_mul_ps(_mm256_loadu_ps(scores + i), factor);
    _mm256_storeu_ps(scores + i, s);
    max = _mm256_max_ps(s, max);
  }
  if (i < n) {
    __m256 s = _mm256_mul_ps(_mm256_loadu_ps(scores + i), factor);
    s = _mm256_blendv_ps(lowest, s, LanesBelow(n, i));
    _mm256_storeu_ps(scores + i, s);
    max = _mm256_max_ps(s, max);
  }
  return MaxOfLanes(max);
}

// No difference to the largest score is above 0.
BATON_INLINE __m256 ExpInPlace(float* scores, __m256 max) {
  const __m256 p = ExpOfSmall8(_mm256_sub_ps(_mm256_loadu_ps(scores), max));
  _mm256_storeu_ps(scores, p);
  return p;
}

}  // namespace

SoftmaxState Avx2Softmax(float* scores, uint32_t n, float scale) {
  const float max = ScaleAndMax(scores, n, scale);
  const __m256 max8 = _mm256_set1_ps(max);
  __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    UNROLL for (int h = 0; h < 2; ++h) {
      sum[h] = _mm256_add_ps(sum[h], ExpInPlace(scores + i + 8 * h, max8));
    }
  }
  for (int h = 0; i + 8 * h < n; ++h) {
    const __m256 p = _mm256_and_ps(ExpInPlace(scores + i + 8 * h, max8), LanesBelow(n, i + 8 * h));
    _mm256_storeu_ps(scores + i + 8 * h, p);
    sum[h] = _mm256_add_ps(sum[h], p);
  }
  return {max, SumOfLanes16(sum[0], sum[1])};
}

void Avx2Merge(SoftmaxState* state, float* values, const SoftmaxState& next,
               const float* next_values, uint32_t n) {
  const float max = next.max > state->max ? next.max : state->max;
  const __m256 difference = _mm256_setr_ps(state->max - max, next.max - max, 0, 0, 0, 0, 0, 0);
  const __m256 factors = Exp8(difference);
  const __m128 keep = _mm256_castps256_ps128(factors);
  const __m128 add = _mm_movehdup_ps(keep);
  const __m256 keep8 = _mm256_broadcastss_ps(keep);
  const __m256 add8 = _mm256_broadcastss_ps(add);
  state->max = max;
  state->sum = _mm_cvtss_f32(
      _mm_fmadd_ss(_mm_set_ss(state->sum), keep, _mm_mul_ss(_mm_set_ss(next.sum), add)));
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(next_values + i), add8);
    const __m256 joined = _mm256_fmadd_ps(_mm256_loadu_ps(values + i), keep8, scaled);
    _mm256_storeu_ps(values + i, joined);
  }
  for (; i < n; ++i) {
    const __m128 scaled = _mm_mul_ss(_mm_set_ss(next_values[i]), add);
    _mm_store_ss(values + i, _mm_fmadd_ss(_mm_set_ss(values[i]), keep, scaled));
  }
}

}  // namespace baton::kernels::cpu
