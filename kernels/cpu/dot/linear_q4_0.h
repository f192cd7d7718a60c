// Q4_0 by dot products of bytes (nibbles.h), which start from what makes the nibbles -8..7.
#ifndef BATON_KERNELS_CPU_DOT_LINEAR_Q4_0_H_
#define BATON_KERNELS_CPU_DOT_LINEAR_Q4_0_H_

#include "kernels/cpu/dot/nibbles.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/tile_loop.h"

namespace baton::kernels::cpu {
namespace {

template <typename V>
struct DotQ4_0 {
  using Ints = typename V::Ints;
  using Floats = typename V::Floats;

  template <int kRows>
  static BATON_INLINE void Tile(const QuantizedPanel<int8_t>& args, const TilePlace& tile) {
    const auto* panel = reinterpret_cast<const PanelQ4_0*>(args.panel);
    const size_t first_scale = tile.first_row * args.in.scale_stride;
    RowPointers<int8_t, kRows> q(args.in.q + tile.first_row * args.in.q_stride, args.in.q_stride);
    RowPointers<float, kRows> scale(args.in.scale + first_scale, args.in.scale_stride);
    RowPointers<int32_t, kRows> centre(args.in.centre + first_scale, args.in.scale_stride);
    Floats sum[kRows][V::kParts];
    V::Zero(sum);
    Ahead<sizeof(PanelQ4_0)> ahead(panel, args.blocks, tile);
    for (const PanelQ4_0* const end = panel + args.blocks; panel != end; ++panel) {
      ahead.Step();
      UNROLL for (int part = 0; part < V::kParts; ++part) {
        Ints dot[kRows];
        UNROLL for (int r = 0; r < kRows; ++r) dot[r] = V::Broadcast(centre[r]);
        AddNibbleDots<V>(panel->nibbles, part, q, dot);
        const Floats d = V::LoadHalf(panel->scale + V::kLanes * part);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const Floats factor = V::Multiply(d, V::Broadcast(scale[r]));
          sum[r][part] = V::Fma(factor, V::ToFloat(dot[r]), sum[r][part]);
        }
      }
      q.Advance(kBlock);
      scale.Advance(1);
      centre.Advance(1);
    }
    V::StoreRows(args.out + tile.first_row * args.out_stride, args.out_stride, sum, args.add);
  }
};

template <typename V>
BATON_INLINE void RunQ4_0(const QuantizedPanel<int8_t>& args) {
  ForTiles<DotQ4_0<V>, V::kTileRows>(args);
}

}  // namespace
}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_DOT_LINEAR_Q4_0_H_
