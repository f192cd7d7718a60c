#if !defined(__clang__)
// g++ 12 warns of the "undefined" operands in its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "benchmarks/free_order_kernels.h"

namespace baton::benchmarks {
namespace {

struct Vector512 {
  using Floats = __m512;
  static constexpr uint32_t kLanes = 16;
  static constexpr int kTileRows = 8;
  static constexpr uint32_t kValueSums = 2;

  static BATON_INLINE Floats Zero() { return _mm512_setzero_ps(); }
  static BATON_INLINE Floats Load(const float* p) { return _mm512_loadu_ps(p); }
  static BATON_INLINE Floats LoadHalf(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static BATON_INLINE Floats Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static BATON_INLINE Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static BATON_INLINE Floats Multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static BATON_INLINE Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static BATON_INLINE void Store(float* p, Floats v) { _mm512_storeu_ps(p, v); }

  using FourBytes = int32_t __attribute__((may_alias, aligned(1)));
  template <int kRows>
  static BATON_INLINE void NibbleDots(const uint8_t (&nibbles)[4][kPanel][4], uint32_t,
                                      const int8_t* q, size_t stride, Floats (&dot)[kRows]) {
    __m512i sum[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_si512();
    UNROLL for (int group = 0; group < 4; ++group) {
      const __m512i both = _mm512_loadu_si512(nibbles[group]);
      const __m512i low = _mm512_and_si512(both, _mm512_set1_epi8(15));
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
      UNROLL for (int r = 0; r < kRows; ++r) {
        const auto* x = reinterpret_cast<const FourBytes*>(q + r * stride + 4 * group);
        sum[r] = _mm512_dpbusd_epi32(sum[r], low, _mm512_set1_epi32(x[0]));
        sum[r] = _mm512_dpbusd_epi32(sum[r], high, _mm512_set1_epi32(x[4]));
      }
    }
    UNROLL for (int r = 0; r < kRows; ++r) dot[r] = _mm512_cvtepi32_ps(sum[r]);
  }
};

}  // namespace

const FreeKernels kFreeAvx512 = FreeKernelsOf<Vector512>();

}  // namespace baton::benchmarks
