#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/nibbles.h"
#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/packed.h"

namespace baton::kernels::cpu {
namespace {

// Nibbles are multiplied unsigned, as 8 more than their weight; `centre` takes that away.
struct Q4_0 {
  using Panel = PanelQ4_0;
  using Packed = PackedNibbles<Panel>;
  using Unpacking = UnpackingNibbles<Panel>;
  using Unpacked = UnpackedNibbles;

  template <int kRows, typename Args>
  static BATON_INLINE void Tile(const Args& args, const TilePlace& tile) {
    const auto* panel = reinterpret_cast<const Panel*>(args.panel);
    const size_t first_scale = tile.first_row * args.in.scale_stride;
    RowPointers<int8_t, kRows> q(args.in.q + tile.first_row * args.in.q_stride, args.in.q_stride);
    RowPointers<float, kRows> scale(args.in.scale + first_scale, args.in.scale_stride);
    RowPointers<int32_t, kRows> centre(args.in.centre + first_scale, args.in.scale_stride);
    float* out = args.out + tile.first_row * args.out_stride;
    __m256 sum[kRows][2];
    StartRows<kRows>(out, args.out_stride, Continued(args), sum);
    Ahead<sizeof(Panel)> ahead(panel, args.blocks, tile);
    for (uint32_t b = 0; b < args.blocks; ++b) {
      __m256i dot[kRows][2];
      ahead.Step();
      const auto& block = BlockOf<Q4_0>(args, panel, b);
      NibbleDots<kRows>(block, q, dot);
      UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 d = block.Scale(h);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256i wide = _mm256_add_epi32(SumOfPairs(dot[r][h]), Broadcast4(centre[r]));
          const __m256 factor = _mm256_mul_ps(d, _mm256_broadcast_ss(scale[r]));
          sum[r][h] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(wide), sum[r][h]);
        }
      }
      q.Advance(kBlock);
      scale.Advance(1);
      centre.Advance(1);
    }
    StoreRows<kRows>(out, args.out_stride, sum, args.add);
  }
};

}  // namespace

void Avx2LinearQ4_0(const QuantizedPanel<int8_t>& args) { RunQuantized<Q4_0>(args); }

}  // namespace baton::kernels::cpu
