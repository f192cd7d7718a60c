// Dot products of unsigned nibbles with int8 activations, for any vector V (dot/vector256.h,
// avx512/vector.h): 16 outputs lie in V::kParts registers of V::kLanes lanes, and a register tile
// has at most V::kTileRows rows.
#ifndef BATON_KERNELS_CPU_DOT_NIBBLES_H_
#define BATON_KERNELS_CPU_DOT_NIBBLES_H_

#include "kernels/cpu/packed.h"
#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

// Adds those of one part of a block and kRows rows. Exact: sums are int32.
template <typename V, int kRows>
BATON_INLINE void AddNibbleDots(const PanelNibbles& nibbles, int part,
                                const RowPointers<int8_t, kRows>& q,
                                typename V::Ints (&dot)[kRows]) {
  UNROLL for (int g = 0; g < 4; ++g) {
    const auto bytes = V::Load(nibbles[g][V::kLanes * part]);
    const auto low = V::LowNibbles(bytes);
    const auto high = V::HighNibbles(bytes);
    UNROLL for (int r = 0; r < kRows; ++r) {
      const int8_t* x = q[r] + 4 * g;
      dot[r] = V::DotBytes(dot[r], low, x);
      dot[r] = V::DotBytes(dot[r], high, x + 16);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_DOT_NIBBLES_H_
