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
// far more than there are, and loads them from the stack. The empty asm hides how
// they hang together.
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
  BATON_INLINE void Hide() {
    if constexpr (kRows > 1) asm("" : "+r"(stride));
    UNROLL for (int i = 0; i < kBases; ++i) asm("" : "+r"(base[i]));
  }

  size_t stride;
  const T* base[kBases];
};

// Of a dense panel. One of a packed weight asks as above, but not for one or two rows of
// activations, which the processor's own guesses serve better (measured on Zen 4). Panels of a KV
// cache ask for args.ahead, in the second-level cache: what lies there is a run's work away.
template <typename B, int kPanels>
class DenseAhead {
 public:
  BATON_INLINE DenseAhead(const DensePanel<B>& args, const TilePlace& tile)
      : runs_(args.ahead), panel_runs_(args.panel_runs) {
    if (panel_runs_ == 0 && args.rows > 2) weight_ = {*args.runs, args.k, tile};
  }

  BATON_INLINE void NextRun() {
    if (runs_ == nullptr) return;
    UNROLL for (int p = 0; p < kPanels; ++p) row_[p] = runs_[p * panel_runs_];
    ++runs_;
  }
  // `at` numbers into the run.
  BATON_INLINE void Step(size_t at) {
    if constexpr (kPanels == 1) weight_.Step();
    if (runs_ == nullptr) return;
    UNROLL for (int p = 0; p < kPanels; ++p) __builtin_prefetch(row_[p] + at, 0, 2);
  }

 private:
  const B* const* runs_;
  const size_t panel_runs_;
  const B* row_[kPanels] = {};
  Ahead<kPanel * sizeof(B)> weight_;
};

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

// The tiles from `tile` on of nearly equal height, each at most kMax.
template <typename Kernel, int kMax, typename Args>
BATON_INLINE void ForTilesFrom(const Args& args, TilePlace tile) {
  for (; tile.index < tile.count; ++tile.index) {
    const uint32_t left = tile.count - tile.index;
    const uint32_t rows = (args.rows - tile.first_row + left - 1) / left;
    RunRows<Kernel, kMax>(args, tile, rows);
    tile.first_row += rows;
  }
}

// Splits args.rows into tiles.
template <typename Kernel, int kMax, typename Args>
BATON_INLINE void ForTiles(const Args& args) {
  ForTilesFrom<Kernel, kMax>(args, {0, 0, (args.rows + kMax - 1) / kMax});
}

template <typename B>
BATON_INLINE DensePanel<B> PanelsFrom(DensePanel<B> args, uint32_t first, uint32_t cols) {
  args.runs += first * args.panel_runs;
  if (args.ahead != nullptr) args.ahead += first * args.panel_runs;
  args.out += first * kPanel;
  args.cols = cols;
  return args;
}

// Kernel<n> works on n panels at once: on as many as have room for their sums, kMaxSums of a row
// and a panel. Few rows of one panel would wait for each addition. `narrow` takes the last columns
// where they fill no panel.
template <template <int> typename Kernel, int kMaxRows, int kMaxSums, typename B, typename Narrow>
BATON_INLINE void ForDenseTiles(const DensePanel<B>& args, const Narrow& narrow) {
  const uint32_t panels = args.cols / kPanel;
  uint32_t panel = 0;
  if (args.rows <= kMaxSums / 4) {
    for (; panel + 4 <= panels; panel += 4) {
      ForTiles<Kernel<4>, kMaxSums / 4>(PanelsFrom(args, panel, 4 * kPanel));
    }
  }
  if (args.rows <= kMaxSums / 2) {
    for (; panel + 2 <= panels; panel += 2) {
      ForTiles<Kernel<2>, kMaxSums / 2>(PanelsFrom(args, panel, 2 * kPanel));
    }
  }
  for (; panel < panels; ++panel) {
    ForTiles<Kernel<1>, kMaxRows>(PanelsFrom(args, panel, kPanel));
  }
  if (args.cols % kPanel > 0) narrow(PanelsFrom(args, panel, args.cols % kPanel));
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_TILE_LOOP_H_
