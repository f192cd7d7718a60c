// Dot products of unsigned nibbles with int8 activations, which Q4_0 and Q4_1 share.
#ifndef BATON_KERNELS_CPU_AVX2_NIBBLES_H_
#define BATON_KERNELS_CPU_AVX2_NIBBLES_H_

#include <immintrin.h>

#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/avx2/unpacked.h"
#include "kernels/cpu/packed.h"

namespace baton::kernels::cpu {
namespace {

// A block as it lies in memory: byte group 2 g + 1 holds the inputs 16 above those of 2 g.
template <typename Panel>
struct PackedNibbles {
  const Panel& block;
  BATON_INLINE __m256i Group(int group, int half) const {
    const __m256i bytes = LoadInts(block.nibbles[group / 2][8 * half]);
    const __m256i shifted = group % 2 == 0 ? bytes : _mm256_srli_epi16(bytes, 4);
    return _mm256_and_si256(shifted, _mm256_set1_epi8(15));
  }
  BATON_INLINE __m256 Scale(int half) const { return LoadHalf8(block.scale + 8 * half); }
  BATON_INLINE __m256 Min(int half) const { return LoadHalf8(block.min + 8 * half); }
};

struct UnpackedNibbles {
  alignas(32) uint8_t bytes[8][2][32];
  alignas(32) float scale[kPanel];
  alignas(32) float min[kPanel];  // Q4_1 alone
  BATON_INLINE __m256i Group(int group, int half) const { return LoadInts(bytes[group][half]); }
  BATON_INLINE __m256 Scale(int half) const { return _mm256_load_ps(scale + 8 * half); }
  BATON_INLINE __m256 Min(int half) const { return _mm256_load_ps(min + 8 * half); }
};

// Keeps what is read of the packed block.
template <typename Panel>
struct UnpackingNibbles {
  PackedNibbles<Panel> from;
  UnpackedNibbles& to;
  BATON_INLINE __m256i Group(int group, int half) const {
    return Keep(to.bytes[group][half], from.Group(group, half));
  }
  BATON_INLINE __m256 Scale(int half) const { return Keep(to.scale + 8 * half, from.Scale(half)); }
  BATON_INLINE __m256 Min(int half) const { return Keep(to.min + 8 * half, from.Min(half)); }
};

// One block times kRows rows; the sum of an output is that of a pair of int16. Weights stay
// unsigned and activations signed, so one maddubs multiplies a nibble pair exactly, and eight of
// them fit in int16: 8 * 2 * 15 * 127 = 30480.
template <int kRows, typename Weights>
BATON_INLINE void NibbleDots(const Weights& weights, const RowPointers<int8_t, kRows>& q,
                             __m256i (&dot)[kRows][2]) {
  UNROLL for (int g = 0; g < 8; ++g) {
    const __m256i w[2] = {weights.Group(g, 0), weights.Group(g, 1)};
    UNROLL for (int r = 0; r < kRows; ++r) {
      const __m256i x = Broadcast4(q[r] + g / 2 * 4 + g % 2 * 16);
      UNROLL for (int h = 0; h < 2; ++h) {
        const __m256i product = _mm256_maddubs_epi16(w[h], x);
        if (g == 0) {
          dot[r][h] = product;
        } else {
          Accumulate16(dot[r][h], product);
        }
      }
    }
  }
}

// A block widens once.
BATON_INLINE __m256i SumOfPairs(__m256i dot) {
  return _mm256_madd_epi16(dot, _mm256_set1_epi16(1));
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX2_NIBBLES_H_
