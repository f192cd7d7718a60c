#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/packed.h"

namespace baton::kernels::cpu {
namespace {

// Weights are widened to int16 once per tile; a pair of products fits int32, and so does a block:
// 32 * 128 * 32767 < 2^31.
struct Q8_0 {
  template <int kRows>
  static BATON_INLINE void Tile(const QuantizedPanel<int16_t>& args, const TilePlace& tile) {
    const auto* panel = reinterpret_cast<const PanelQ8_0*>(args.panel);
    const int16_t* q = args.in.q + tile.first_row * args.in.q_stride;
    const float* scale = args.in.scale + tile.first_row * args.in.scale_stride;
    __m256 sum[kRows][2];
    UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
    Ahead<sizeof(PanelQ8_0)> ahead(panel, args.blocks, tile);
    for (uint32_t b = 0; b < args.blocks; ++b) {
      __m256i dot[kRows][2];
      ahead.Step();
      BlockDots<kRows>(panel[b], q + b * kBlock, args.in.q_stride, dot);
      UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 d = LoadHalf8(panel[b].scale + 8 * h);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256 x = _mm256_broadcast_ss(scale + r * args.in.scale_stride + b);
          sum[r][h] =
              _mm256_fmadd_ps(_mm256_mul_ps(d, x), _mm256_cvtepi32_ps(dot[r][h]), sum[r][h]);
        }
      }
    }
    float* out = args.out + tile.first_row * args.out_stride;
    StoreRows<kRows>(out, args.out_stride, sum, args.add);
  }

  template <int kRows>
  static BATON_INLINE void BlockDots(const PanelQ8_0& block, const int16_t* q, size_t q_stride,
                                     __m256i (&dot)[kRows][2]) {
    UNROLL for (int r = 0; r < kRows; ++r) dot[r][0] = dot[r][1] = _mm256_setzero_si256();
    UNROLL for (int pair = 0; pair < 16; ++pair) {
      UNROLL for (int h = 0; h < 2; ++h) {
        const __m256i w = _mm256_cvtepi8_epi16(LoadInts16(block.values[pair][8 * h]));
        UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256i x = Broadcast4(q + r * q_stride + 2 * pair);
          Accumulate32(dot[r][h], _mm256_madd_epi16(w, x));
        }
      }
    }
  }
};

}  // namespace

void Avx2LinearQ8_0(const QuantizedPanel<int16_t>& args) { ForTiles<Q8_0, 4>(args); }

}  // namespace baton::kernels::cpu
