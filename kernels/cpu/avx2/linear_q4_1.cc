#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/nibbles.h"
#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/packed.h"

namespace baton::kernels::cpu {
namespace {

struct Q4_1 {
  template <int kRows>
  static BATON_INLINE void Tile(const QuantizedPanel<int8_t>& args, const TilePlace& tile) {
    const auto* panel = reinterpret_cast<const PanelQ4_1*>(args.panel);
    const int8_t* q = args.in.q + tile.first_row * args.in.q_stride;
    const float* scale = args.in.scale + tile.first_row * args.in.scale_stride;
    const float* scaled_sum = args.in.scaled_sum + tile.first_row * args.in.scale_stride;
    __m256 sum[kRows][2];
    UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
    Ahead<sizeof(PanelQ4_1)> ahead(panel, args.blocks, tile);
    for (uint32_t b = 0; b < args.blocks; ++b) {
      __m256i dot[kRows][2];
      ahead.Step();
      NibbleDots<kRows>(panel[b].nibbles, q + b * kBlock, args.in.q_stride, dot);
      UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 d = LoadHalf8(panel[b].scale + 8 * h);
        const __m256 m = LoadHalf8(panel[b].min + 8 * h);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256i wide = SumOfPairs(dot[r][h]);
          const size_t at = r * args.in.scale_stride + b;
          const __m256 factor = _mm256_mul_ps(d, _mm256_broadcast_ss(scale + at));
          sum[r][h] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(wide), sum[r][h]);
          sum[r][h] = _mm256_fmadd_ps(m, _mm256_broadcast_ss(scaled_sum + at), sum[r][h]);
        }
      }
    }
    float* out = args.out + tile.first_row * args.out_stride;
    StoreRows<kRows>(out, args.out_stride, sum, args.add);
  }
};

}  // namespace

void Avx2LinearQ4_1(const QuantizedPanel<int8_t>& args) { ForTiles<Q4_1, 4>(args); }

}  // namespace baton::kernels::cpu
