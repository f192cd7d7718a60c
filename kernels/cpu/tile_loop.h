// What the kernels of every instruction set share: the loop over register tiles of rows.
#ifndef BATON_KERNELS_CPU_TILE_LOOP_H_
#define BATON_KERNELS_CPU_TILE_LOOP_H_

#include <stddef.h>
#include <stdint.h>

#define BATON_INLINE inline __attribute__((always_inline))

// A loop over accumulators that is not unrolled keeps them in memory.
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

// Internal linkage for everything: these are compiled for one instruction set and must not be
// shared by the linker.
namespace baton::kernels::cpu {
namespace {

// Few rows are bound by memory: asks for the lines of *block that lie 3 KB ahead.
template <typename Block>
BATON_INLINE void PrefetchAhead(const Block* block) {
  const char* ahead = reinterpret_cast<const char*>(block) + 3072;
  UNROLL for (size_t line = 0; line < sizeof(Block); line += 64) __builtin_prefetch(ahead + line);
}

// Where kRows rows stand, one pointer for three of them: with base + stride and base + 2 * stride
// an instruction addresses its row by itself. Left alone, GCC gives each row and offset a register,
// far more than there are. The empty asm hides how the pointers hang together.
template <typename T, int kRows>
struct RowPointers {
  static constexpr int kBases = (kRows + 2) / 3;

  BATON_INLINE RowPointers(const T* first, size_t row_stride) : stride(row_stride) {
    UNROLL for (int i = 0; i < kBases; ++i) base[i] = first + 3 * i * stride;
    Hide();
  }
  BATON_INLINE const T* operator[](int row) const { return base[row / 3] + row % 3 * stride; }
  BATON_INLINE void Advance(size_t n) {
    UNROLL for (int i = 0; i < kBases; ++i) base[i] += n;
    Hide();
  }
  BATON_INLINE void Hide() { UNROLL for (int i = 0; i < kBases; ++i) asm("" : "+r"(base[i])); }

  size_t stride;
  const T* base[kBases];
};

// Several tiles work on one panel from cache, and no miss tells the processor that the next panel
// will be wanted: each tile asks for its share of it.
BATON_INLINE void PrefetchShare(const void* next, size_t bytes, uint32_t tile, uint32_t tiles) {
  const char* p = static_cast<const char*>(next);
  for (size_t at = bytes * tile / tiles; at < bytes * (tile + 1) / tiles; at += 64) {
    __builtin_prefetch(p + at);
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

#endif  // BATON_KERNELS_CPU_TILE_LOOP_H_
