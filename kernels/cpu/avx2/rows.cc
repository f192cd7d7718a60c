#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/exp.h"
#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/row_loops.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE __m256 SwiGlu8(__m256 gate, __m256 up) {
  const __m256 negated = _mm256_xor_ps(gate, _mm256_set1_ps(-0.0f));
  const __m256 divisor = _mm256_add_ps(_mm256_set1_ps(1.0f), Exp8(negated));
  return _mm256_mul_ps(_mm256_div_ps(gate, divisor), up);
}

BATON_INLINE __m128i ToHalf8(__m256 x) {
  const __m256 limit = _mm256_set1_ps(65504.0f);
  x = _mm256_min_ps(limit, x);  // NaN stays
  x = _mm256_max_ps(_mm256_xor_ps(limit, _mm256_set1_ps(-0.0f)), x);
  return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Lanes 0..count-1 are loaded, the others are 0.
BATON_INLINE __m256i MaskOf(size_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace

void Avx2RmsNorm(const float* x, const float* gain, size_t n, float eps, float* out) {
  NormRow(x, gain, n, eps, out);
}

void Avx2RotateNeighbours(const float* cos, const float* sin, size_t pairs, float* head) {
  RotatePairs<2>(cos, sin, pairs, head, 1);
}

void Avx2RotateHalves(const float* cos, const float* sin, size_t pairs, float* head) {
  RotatePairs<1>(cos, sin, pairs, head, pairs);
}

void Avx2SwiGlu(const float* gate, const float* up, size_t n, float* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(out + i, SwiGlu8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  }
  if (i == n) return;
  const __m256i mask = MaskOf(n - i);
  const __m256 rest = SwiGlu8(_mm256_maskload_ps(gate + i, mask), _mm256_maskload_ps(up + i, mask));
  _mm256_maskstore_ps(out + i, mask, rest);
}

void Avx2ToHalf(const float* x, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), ToHalf8(_mm256_loadu_ps(x + i)));
  }
  if (i == n) return;
  uint16_t rest[8];
  const __m256 last = _mm256_maskload_ps(x + i, MaskOf(n - i));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), ToHalf8(last));
  for (size_t j = 0; i + j < n; ++j) out[i + j] = rest[j];
}

}  // namespace baton::kernels::cpu
