// The vector of the VNNI kernels with 512 bits, and what else the AVX-512 kernels share.
#ifndef BATON_KERNELS_CPU_AVX512_VECTOR_H_
#define BATON_KERNELS_CPU_AVX512_VECTOR_H_

#include <immintrin.h>

#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE __m512 LoadHalf16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// The first n of 16 lanes, all of them from n = 16 on.
BATON_INLINE __mmask16 LanesBelow(size_t n) {
  return n >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << n) - 1);
}

struct Vector512 {
  using Ints = __m512i;
  using Floats = __m512;
  using ShortDots = Ints;
  static constexpr int kLanes = 16;
  static constexpr int kParts = 1;
  static constexpr int kTileRows = 12;

  static BATON_INLINE Ints ZeroInts() { return _mm512_setzero_si512(); }
  static BATON_INLINE ShortDots ZeroShortDots() { return _mm512_setzero_si512(); }
  static BATON_INLINE Ints Broadcast(const int32_t* p) { return _mm512_set1_epi32(*p); }
  static BATON_INLINE Ints Load(const void* p) { return _mm512_loadu_si512(p); }
  // 32 signed bytes as int16.
  static BATON_INLINE Ints LoadWidened(const void* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static BATON_INLINE Ints LowNibbles(Ints v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
  static BATON_INLINE Ints HighNibbles(Ints v) { return LowNibbles(_mm512_srli_epi16(v, 4)); }
  // Every lane gets the four bytes at x. In assembly, because g++ 12 broadcasts by an instruction
  // of its own: a third slower than the operand that does both (Zen 4).
  static BATON_INLINE Ints DotBytes(Ints sum, Ints unsigned_bytes, const int8_t* x) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "m"(*Four(x)));
    return sum;
  }
  static BATON_INLINE ShortDots DotShorts(ShortDots sum, Ints shorts, const int16_t* x) {
    asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(shorts), "m"(*Four(x)));
    return sum;
  }
  using FourBytes = int32_t __attribute__((may_alias, aligned(1)));
  static BATON_INLINE const FourBytes* Four(const void* p) {
    return static_cast<const FourBytes*>(p);
  }

  static BATON_INLINE Floats LoadHalf(const uint16_t* p) { return LoadHalf16(p); }
  static BATON_INLINE Floats Broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static BATON_INLINE Floats Multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static BATON_INLINE Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static BATON_INLINE Floats ToFloat(Ints v) { return _mm512_cvtepi32_ps(v); }

  template <int kRows>
  static BATON_INLINE void Zero(Floats (&sum)[kRows][kParts]) {
    UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = _mm512_setzero_ps();
  }
  template <int kRows>
  static BATON_INLINE void StoreRows(float* out, size_t stride, const Floats (&sum)[kRows][kParts],
                                     bool add) {
    UNROLL for (int r = 0; r < kRows; ++r) {
      float* p = out + r * stride;
      _mm512_storeu_ps(p, add ? _mm512_add_ps(_mm512_loadu_ps(p), sum[r][0]) : sum[r][0]);
    }
  }
};

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX512_VECTOR_H_
