// The vector of the VNNI kernels with 256 bits. `Dot` is the pair of dot products: it is all that
// differs between AVX-VNNI (VEX), AVX512-VNNI with VL (EVEX) and a model of the instructions.
#ifndef BATON_KERNELS_CPU_DOT_VECTOR256_H_
#define BATON_KERNELS_CPU_DOT_VECTOR256_H_

#include <immintrin.h>

#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

template <typename Dot>
struct Vector256 {
  using Ints = __m256i;
  using Floats = __m256;
  using ShortDots = Ints;
  static constexpr int kLanes = 8;
  static constexpr int kParts = 2;
  static constexpr int kTileRows = 4;

  static BATON_INLINE Ints ZeroInts() { return _mm256_setzero_si256(); }
  static BATON_INLINE ShortDots ZeroShortDots() { return _mm256_setzero_si256(); }
  static BATON_INLINE Ints Load(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static BATON_INLINE void Store(void* p, Ints v) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), v);
  }
  // Sixteen signed bytes as int16.
  static BATON_INLINE Ints LoadWidened(const void* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static BATON_INLINE Ints Broadcast(const int32_t* p) { return FourBytes(p); }
  // The four bytes at p in every lane.
  static BATON_INLINE Ints FourBytes(const void* p) {
    return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
  }
  static BATON_INLINE Ints LowNibbles(Ints v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
  static BATON_INLINE Ints HighNibbles(Ints v) { return LowNibbles(_mm256_srli_epi16(v, 4)); }
  static BATON_INLINE Ints DotBytes(Ints sum, Ints unsigned_bytes, const int8_t* x) {
    return Dot::Bytes(sum, unsigned_bytes, FourBytes(x));
  }
  static BATON_INLINE ShortDots DotShorts(ShortDots sum, Ints shorts, const int16_t* x) {
    return Dot::Shorts(sum, shorts, FourBytes(x));
  }

  static BATON_INLINE Floats LoadHalf(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static BATON_INLINE Floats Broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static BATON_INLINE Floats Multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static BATON_INLINE Floats Fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static BATON_INLINE Floats ToFloat(Ints v) { return _mm256_cvtepi32_ps(v); }

  template <int kRows>
  static BATON_INLINE void Zero(Floats (&sum)[kRows][kParts]) {
    UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
  }
  template <int kRows>
  static BATON_INLINE void StoreRows(float* out, size_t stride, const Floats (&sum)[kRows][kParts],
                                     bool add) {
    UNROLL for (int r = 0; r < kRows; ++r) {
      UNROLL for (int part = 0; part < kParts; ++part) {
        float* p = out + r * stride + kLanes * part;
        const Floats value = sum[r][part];
        _mm256_storeu_ps(p, add ? _mm256_add_ps(_mm256_loadu_ps(p), value) : value);
      }
    }
  }
};

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_DOT_VECTOR256_H_
