#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/nibbles.h"
#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/packed.h"

namespace baton::kernels::cpu {
namespace {

struct Q4_1 {
  using Panel = PanelQ4_1;
  using Packed = PackedNibbles<Panel>;
  using Unpacking = UnpackingNibbles<Panel>;
  using Unpacked = UnpackedNibbles;

  template <int kRows, typename Args>
  static BATON_INLINE void Tile(const Args& args, const TilePlace& tile) {
    const auto* panel = reinterpret_cast<const Panel*>(args.panel);
    const size_t first_scale = tile.first_row * args.in.scale_stride;
    RowPointers<int8_t, kRows> q(args.in.q + tile.first_row * args.in.q_stride, args.in.q_stride);
    RowPointers<float, kRows> scale(args.in.scale + first_scale, args.in.scale_stride);
    RowPointers<float, kRows> scaled_sum(args.in.scaled_sum + first_scale, args.in.scale_stride);
    float* out = args.out + tile.first_row * args.out_stride;
    __m256 sum[kRows][2];
    StartRows<kRows>(out, args.out_stride, Continued(args), sum);
    Ahead<sizeof(Panel)> ahead(panel, args.blocks, tile);
    for (uint32_t b = 0; b < args.blocks; ++b) {
      __m256i dot[kRows][2];
      ahead.Step();
      const auto& block = BlockOf<Q4_1>(args, panel, b);
      NibbleDots<kRows>(block, q, dot);
      UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 d = block.Scale(h);
        const __m256 m = block.Min(h);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256i wide = SumOfPairs(dot[r][h]);
          const __m256 factor = _mm256_mul_ps(d, _mm256_broadcast_ss(scale[r]));
          sum[r][h] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(wide), sum[r][h]);
          sum[r][h] = _mm256_fmadd_ps(m, _mm256_broadcast_ss(scaled_sum[r]), sum[r][h]);
        }
      }
      q.Advance(kBlock);
      scale.Advance(1);
      scaled_sum.Advance(1);
    }
    StoreRows<kRows>(out, args.out_stride, sum, args.add);
  }
};

}  // namespace

void Avx2LinearQ4_1(const QuantizedPanel<int8_t>& args) { RunQuantized<Q4_1>(args); }

}  // namespace baton::kernels::cpu
