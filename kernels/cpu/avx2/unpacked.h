// Weights for many rows: unpacked once into the first-level cache, for all tiles of rows.
#ifndef BATON_KERNELS_CPU_AVX2_UNPACKED_H_
#define BATON_KERNELS_CPU_AVX2_UNPACKED_H_

#include <immintrin.h>

#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

constexpr int kTileRows = 4;

// A run of a panel's blocks. The first tile of rows unpacks them as it goes, which hides what that
// costs behind its products; the others read what it kept. With `continued`, sums begin with what
// is in `out`: storing a float and loading it again changes nothing.
template <typename Q>
struct Run : QuantizedPanel<Q> {
  bool continued = false;
};
template <typename Q, typename Block>
struct UnpackingRun : Run<Q> {
  Block* unpacked = nullptr;
};
template <typename Q, typename Block>
struct UnpackedRun : Run<Q> {
  const Block* unpacked = nullptr;
};

template <typename Q>
BATON_INLINE bool Continued(const QuantizedPanel<Q>&) {
  return false;
}
template <typename Q>
BATON_INLINE bool Continued(const Run<Q>& run) {
  return run.continued;
}

// Where a tile reads a block's weights.
template <typename Kernel, typename Q>
BATON_INLINE typename Kernel::Packed BlockOf(const QuantizedPanel<Q>&,
                                             const typename Kernel::Panel* panel, uint32_t block) {
  return {panel[block]};
}
template <typename Kernel, typename Q>
BATON_INLINE typename Kernel::Unpacking BlockOf(
    const UnpackingRun<Q, typename Kernel::Unpacked>& run, const typename Kernel::Panel* panel,
    uint32_t block) {
  return {{panel[block]}, run.unpacked[block]};
}
template <typename Kernel, typename Q>
BATON_INLINE const typename Kernel::Unpacked& BlockOf(
    const UnpackedRun<Q, typename Kernel::Unpacked>& run, const typename Kernel::Panel*,
    uint32_t block) {
  return run.unpacked[block];
}

BATON_INLINE __m256i Keep(void* to, __m256i value) {
  _mm256_store_si256(static_cast<__m256i*>(to), value);
  return value;
}
BATON_INLINE __m256 Keep(float* to, __m256 value) {
  _mm256_store_ps(to, value);
  return value;
}

// Moves `in` on to its block `blocks` of row `rows`.
template <typename Q>
BATON_INLINE void Skip(QuantizedRows<Q>& in, size_t rows, size_t blocks) {
  const size_t scales = rows * in.scale_stride + blocks;
  in.q += rows * in.q_stride + blocks * kBlock;
  in.scale += scales;
  if (in.scaled_sum != nullptr) in.scaled_sum += scales;
  if (in.centre != nullptr) in.centre += scales;
}

// Blocks of a run: unpacked they take half of a first-level cache of 32 KB.
template <typename Kernel>
inline constexpr uint32_t kRunBlocks = 18 * 1024 / sizeof(typename Kernel::Unpacked);

template <typename Kernel, typename Q>
BATON_INLINE void UnpackAndRunTiles(const Run<Q>& run, typename Kernel::Unpacked* unpacked) {
  TilePlace tile{0, 0, (run.rows + kTileRows - 1) / kTileRows};
  RunTile<Kernel, kTileRows>(UnpackingRun<Q, typename Kernel::Unpacked>{run, unpacked}, tile);
  const UnpackedRun<Q, typename Kernel::Unpacked> rest{run, unpacked};
  tile.first_row = kTileRows;
  ++tile.index;
  ForTilesFrom<Kernel, kTileRows>(rest, tile);
}

// Run after run by Kernel::Tile, for 12 rows and more: the first tile is as high as any. Where
// `args.add` is set there is but one run.
template <typename Kernel, typename Q>
BATON_INLINE void ForRuns(const QuantizedPanel<Q>& args) {
  constexpr uint32_t kMaxBlocks = kRunBlocks<Kernel>;
  typename Kernel::Unpacked unpacked[kMaxBlocks];
  Run<Q> run{args};
  const uint32_t runs = (args.blocks + kMaxBlocks - 1) / kMaxBlocks;
  for (uint32_t done = 0, i = 0; i < runs; ++i) {
    run.blocks = (args.blocks - done) / (runs - i);
    run.continued = done > 0;
    UnpackAndRunTiles<Kernel>(run, unpacked);
    done += run.blocks;
    run.panel += run.blocks * sizeof(typename Kernel::Panel);
    Skip(run.in, 0, run.blocks);
  }
}

// Several runs whose sums are added to `out` sum beside it first, for at most 48 rows at a time and
// at least half as many.
template <typename Kernel, typename Q>
BATON_INLINE void RunUnpacked(const QuantizedPanel<Q>& args) {
  if (!args.add || args.blocks <= kRunBlocks<Kernel>) return ForRuns<Kernel>(args);
  constexpr uint32_t kRows = 48;
  float sums[kRows][kPanel];
  QuantizedPanel<Q> part = args;
  part.add = false;
  part.out = sums[0];
  part.out_stride = kPanel;
  const uint32_t parts = (args.rows + kRows - 1) / kRows;
  for (uint32_t row = 0, i = 0; i < parts; ++i, row += part.rows) {
    part.rows = (args.rows - row) / (parts - i);
    ForRuns<Kernel>(part);
    Skip(part.in, part.rows, 0);
    for (uint32_t r = 0; r < part.rows; ++r) {
      float* out = args.out + (row + r) * args.out_stride;
      for (uint32_t n = 0; n < kPanel; ++n) out[n] += sums[r][n];
    }
  }
}

// Few rows do not repay the unpacking (measured; with 8-bit weights it pays from 12 rows on).
template <typename Kernel, typename Q>
BATON_INLINE void RunQuantized(const QuantizedPanel<Q>& args) {
  constexpr uint32_t kManyRows = 12;
  if (args.rows < kManyRows) return ForTiles<Kernel, kTileRows>(args);
  RunUnpacked<Kernel>(args);
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_AVX2_UNPACKED_H_
