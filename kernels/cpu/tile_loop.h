// What the kernels of every instruction set share: the loop over register tiles of rows.
#ifndef BATON_KERNELS_CPU_TILE_LOOP_H_
#define BATON_KERNELS_CPU_TILE_LOOP_H_

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/tier.h"

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

// One of the tiles that work on a panel, one after another.
struct TilePlace {
  uint32_t first_row = 0;
  uint32_t index = 0;
  uint32_t count = 1;
};

// Weights that will be wanted, for work in steps of kStepBytes. A single tile meets memory as it
// goes, and looks 3 KB ahead. Several tiles work on a panel from cache, where no miss asks for the
// next one: each asks for its share of it, and as memory answers few requests at once, bit by bit.
template <size_t kStepBytes>
class Ahead {
 public:
  // The panel has so many steps; its successor follows it in memory.
  BATON_INLINE Ahead(const void* panel, uint32_t steps, const TilePlace& tile)
      : next_(static_cast<const char*>(panel)), alone_(tile.count == 1) {
    const size_t bytes = steps * kStepBytes;
    next_ += alone_ ? 3072 : bytes + bytes * tile.index / tile.count;
    limit_ = next_;
    share_ = kStepBytes / tile.count;
  }
  BATON_INLINE Ahead() = default;  // asks for nothing

  BATON_INLINE void Step() {
    if (kLongStep && alone_) {
      UNROLL for (size_t line = 0; line < kStepBytes; line += 64) __builtin_prefetch(next_ + line);
      next_ += kStepBytes;
      return;
    }
    limit_ += share_;
    for (; next_ < limit_; next_ += 64) __builtin_prefetch(next_);
  }

 private:
  // Several lines of a step are asked for without a loop, which costs a few percent.
  static constexpr bool kLongStep = kStepBytes > 64;

  const char* next_ = nullptr;
  const char* limit_ = nullptr;
  size_t share_ = 0;
  bool alone_ = false;
};

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

// Of a dense panel: nothing where its rows lie apart, in blocks of a KV cache, nor for one or two
// rows of activations, which the processor's own guesses serve better (measured on Zen 4).
template <typename B>
BATON_INLINE Ahead<kPanel * sizeof(B)> AheadOf(const DensePanel<B>& args, const TilePlace& tile) {
  const bool is_weight = args.b_stride == kPanel && args.run >= args.k;
  if (!is_weight || args.rows <= 2) return {};
  return {*args.runs, args.k, tile};
}

template <typename Kernel, int kRows, typename Args>
__attribute__((noinline)) void RunTile(const Args& args, const TilePlace& tile) {
  Kernel::template Tile<kRows>(args, tile);
}

// Runs exactly `rows` rows (1..kMax) as one tile, so that no remainder reads the weights again.
template <typename Kernel, int kMax, typename Args>
BATON_INLINE void RunRows(const Args& args, const TilePlace& tile, uint32_t rows) {
  if constexpr (kMax > 1) {
    if (rows < kMax) return RunRows<Kernel, kMax - 1>(args, tile, rows);
  }
  RunTile<Kernel, kMax>(args, tile);
}

// Splits args.rows into tiles of nearly equal height, each at most kMax.
template <typename Kernel, int kMax, typename Args>
BATON_INLINE void ForTiles(const Args& args) {
  TilePlace tile;
  tile.count = (args.rows + kMax - 1) / kMax;
  for (; tile.index < tile.count; ++tile.index) {
    const uint32_t left = tile.count - tile.index;
    const uint32_t rows = (args.rows - tile.first_row + left - 1) / left;
    RunRows<Kernel, kMax>(args, tile, rows);
    tile.first_row += rows;
  }
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_TILE_LOOP_H_
