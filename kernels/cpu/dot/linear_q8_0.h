// Q8_0 by dot products of two int16, for any vector V (see linear_q4_1.h). A block fits
// int32: 32 * 128 * 32767 < 2^31.
#ifndef BATON_KERNELS_CPU_DOT_LINEAR_Q8_0_H_
#define BATON_KERNELS_CPU_DOT_LINEAR_Q8_0_H_

#include "kernels/cpu/packed.h"
#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

template <typename V>
struct DotQ8_0 {
  using Ints = typename V::Ints;
  using ShortDots = typename V::ShortDots;
  using Floats = typename V::Floats;

  template <int kRows>
  static BATON_INLINE void Tile(const QuantizedPanel<int16_t>& args, const TilePlace& tile) {
    const auto* panel = reinterpret_cast<const PanelQ8_0*>(args.panel);
    RowPointers<int16_t, kRows> q(args.in.q + tile.first_row * args.in.q_stride, args.in.q_stride);
    RowPointers<float, kRows> scale(args.in.scale + tile.first_row * args.in.scale_stride,
                                    args.in.scale_stride);
    Floats sum[kRows][V::kParts];
    V::Zero(sum);
    Ahead<sizeof(PanelQ8_0)> ahead(panel, args.blocks, tile);
    for (const PanelQ8_0* const end = panel + args.blocks; panel != end; ++panel) {
      ahead.Step();
      UNROLL for (int part = 0; part < V::kParts; ++part) {
        ShortDots dot[kRows];
        BlockDots<kRows>(*panel, part, q, dot);
        const Floats d = V::LoadHalf(panel->scale + V::kLanes * part);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const Floats x = V::Broadcast(scale[r]);
          sum[r][part] = V::Fma(V::Multiply(d, x), V::ToFloat(dot[r]), sum[r][part]);
        }
      }
      q.Advance(kBlock);
      scale.Advance(1);
    }
    V::StoreRows(args.out + tile.first_row * args.out_stride, args.out_stride, sum, args.add);
  }

  template <int kRows>
  static BATON_INLINE void BlockDots(const PanelQ8_0& block, int part,
                                     const RowPointers<int16_t, kRows>& q,
                                     ShortDots (&dot)[kRows]) {
    UNROLL for (int r = 0; r < kRows; ++r) dot[r] = V::ZeroShortDots();
    UNROLL for (int pair = 0; pair < 16; ++pair) {
      const Ints w = V::LoadWidened(block.values[pair][V::kLanes * part]);
      UNROLL for (int r = 0; r < kRows; ++r) { dot[r] = V::DotShorts(dot[r], w, q[r] + 2 * pair); }
    }
  }
};

template <typename V>
BATON_INLINE void RunQ8_0(const QuantizedPanel<int16_t>& args) {
  ForTiles<DotQ8_0<V>, V::kTileRows>(args);
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_DOT_LINEAR_Q8_0_H_
