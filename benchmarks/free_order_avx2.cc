#include <immintrin.h>

#include "benchmarks/free_order_kernels.h"

namespace baton::benchmarks {
namespace {

struct Vector256 {
  using Floats = __m256;
  static constexpr uint32_t kLanes = 8;
  static constexpr int kTileRows = 4;
  static constexpr uint32_t kValueSums = 1;  // twelve sums fill the registers

  static BATON_INLINE Floats Zero() { return _mm256_setzero_ps(); }
  static BATON_INLINE Floats Load(const float* p) { return _mm256_loadu_ps(p); }
  static BATON_INLINE Floats LoadHalf(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static BATON_INLINE Floats Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static BATON_INLINE Floats Add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static BATON_INLINE Floats Multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static BATON_INLINE Floats Fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static BATON_INLINE void Store(float* p, Floats v) { _mm256_storeu_ps(p, v); }

  // 16-bit sums hold a block of 32.
  template <int kRows>
  static BATON_INLINE void NibbleDots(const uint8_t (&nibbles)[4][kPanel][4], uint32_t lane,
                                      const int8_t* q, size_t stride, Floats (&dot)[kRows]) {
    __m256i sum[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) sum[r] = _mm256_setzero_si256();
    UNROLL for (int group = 0; group < 4; ++group) {
      const __m256i both =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(nibbles[group][lane]));
      const __m256i low = _mm256_and_si256(both, _mm256_set1_epi8(15));
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
      UNROLL for (int r = 0; r < kRows; ++r) {
        const int8_t* x = q + r * stride + 4 * group;
        Add16(sum[r], _mm256_maddubs_epi16(low, Broadcast4(x)));
        Add16(sum[r], _mm256_maddubs_epi16(high, Broadcast4(x + 16)));
      }
    }
    UNROLL for (int r = 0; r < kRows; ++r) {
      dot[r] = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[r], _mm256_set1_epi16(1)));
    }
  }

 private:
  static BATON_INLINE __m256i Broadcast4(const int8_t* p) {
    return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(p)));
  }
  // The empty asm keeps GCC from re-associating, which would spill every product.
  static BATON_INLINE void Add16(__m256i& sum, __m256i product) {
    sum = _mm256_add_epi16(sum, product);
    asm("" : "+x"(sum));
  }
};

}  // namespace

const FreeKernels kFreeAvx2 = FreeKernelsOf<Vector256>();

}  // namespace baton::benchmarks
