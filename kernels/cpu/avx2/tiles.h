// What the AVX2 kernels share: loads and stores, and the loop over register tiles of rows.
#ifndef BATON_KERNELS_CPU_AVX2_TILES_H_
#define BATON_KERNELS_CPU_AVX2_TILES_H_

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/tier.h"

#define BATON_INLINE inline __attribute__((always_inline))

// A loop over accumulators that is not unrolled keeps them in memory.
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

// Internal linkage for everything: these are compiled for AVX2 and must not be shared by the
// linker.
namespace baton::kernels::cpu {
namespace {

BATON_INLINE __m256i LoadInts(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

BATON_INLINE __m128i LoadInts16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

BATON_INLINE __m256 LoadHalf8(const uint16_t* p) { return _mm256_cvtph_ps(LoadInts16(p)); }
BATON_INLINE __m256 Load8(const uint16_t* p) { return LoadHalf8(p); }
BATON_INLINE __m256 Load8(const BFloat16* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadInts16(p)), 16));
}
BATON_INLINE __m256 Load8(const float* p) { return _mm256_loadu_ps(p); }

// The four bytes at p in every lane.
BATON_INLINE __m256i Broadcast4(const void* p) {
  return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
}

template <int kRows>
BATON_INLINE void StoreRows(float* out, size_t stride, const __m256 (&sum)[kRows][2], bool add) {
  UNROLL for (int r = 0; r < kRows; ++r) {
    UNROLL for (int h = 0; h < 2; ++h) {
      float* p = out + r * stride + 8 * h;
      _mm256_storeu_ps(p, add ? _mm256_add_ps(_mm256_loadu_ps(p), sum[r][h]) : sum[r][h]);
    }
  }
}

// The empty asm keeps GCC from re-associating integer sums, which would spill every product.
BATON_INLINE void Accumulate16(__m256i& sum, __m256i product) {
  sum = _mm256_add_epi16(sum, product);
  asm("" : "+x"(sum));
}
BATON_INLINE void Accumulate32(__m256i& sum, __m256i product) {
  sum = _mm256_add_epi32(sum, product);
  asm("" : "+x"(sum));
}

// Several tiles work on one panel from cache, and no miss tells the processor that the next panel
// will be wanted: each tile asks for its share of it.
BATON_INLINE void PrefetchShare(const void* next, size_t bytes, uint32_t tile, uint32_t tiles) {
  const char* p = static_cast<const char*>(next);
  for (size_t at = bytes * tile / tiles; at < bytes * (tile + 1) / tiles; at += 64) {
    _mm_prefetch(p + at, _MM_HINT_T0);
  }
}

template <typename Kernel, int kRows, bool kStreams, typename Args>
__attribute__((noinline)) void RunTile(const Args& args, uint32_t first_row) {
  Kernel::template Tile<kRows, kStreams>(args, first_row);
}

// Runs exactly `rows` rows (1..kMax) as one tile, so that no remainder reads the weights again.
template <typename Kernel, int kMax, bool kStreams, typename Args>
BATON_INLINE void RunRows(const Args& args, uint32_t first_row, uint32_t rows) {
  if constexpr (kMax > 1) {
    if (rows < kMax) return RunRows<Kernel, kMax - 1, kStreams>(args, first_row, rows);
  }
  RunTile<Kernel, kMax, kStreams>(args, first_row);
}

// Splits args.rows into tiles of nearly equal height, each at most kMax. A single tile streams the
// weights from memory.
template <typename Kernel, int kMax, typename Args>
BATON_INLINE void ForTiles(const Args& args) {
  const uint32_t tiles = (args.rows + kMax - 1) / kMax;
  if (tiles == 1) return RunRows<Kernel, kMax, true>(args, 0, args.rows);
  for (uint32_t tile = 0, row = 0; tile < tiles; ++tile) {
    const uint32_t rows = (args.rows - row + (tiles - tile) - 1) / (tiles - tile);
    Kernel::PrefetchNext(args, tile, tiles);
    RunRows<Kernel, kMax, false>(args, row, rows);
    row += rows;
  }
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX2_TILES_H_
