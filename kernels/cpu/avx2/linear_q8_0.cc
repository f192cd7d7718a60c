#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/tiles.h"
#include "kernels/cpu/avx2/unpacked.h"
#include "kernels/cpu/packed.h"

namespace baton::kernels::cpu {
namespace {

// A block's weights, a pair of inputs at a time, as int16.
struct PackedPairs {
  const PanelQ8_0& block;
  BATON_INLINE __m256i Pair(int pair, int half) const {
    return _mm256_cvtepi8_epi16(LoadInts16(block.values[pair][8 * half]));
  }
  BATON_INLINE __m256 Scale(int half) const { return LoadHalf8(block.scale + 8 * half); }
};

struct UnpackedPairs {
  alignas(32) int16_t values[16][2][16];
  alignas(32) float scale[kPanel];
  BATON_INLINE __m256i Pair(int pair, int half) const { return LoadInts(values[pair][half]); }
  BATON_INLINE __m256 Scale(int half) const { return _mm256_load_ps(scale + 8 * half); }
};

// Keeps what is read of the packed block.
struct UnpackingPairs {
  PackedPairs from;
  UnpackedPairs& to;
  BATON_INLINE __m256i Pair(int pair, int half) const {
    return Keep(to.values[pair][half], from.Pair(pair, half));
  }
  BATON_INLINE __m256 Scale(int half) const { return Keep(to.scale + 8 * half, from.Scale(half)); }
};

// A pair of products fits int32, and so does a block: 32 * 128 * 32767 < 2^31.
struct Q8_0 {
  using Panel = PanelQ8_0;
  using Packed = PackedPairs;
  using Unpacking = UnpackingPairs;
  using Unpacked = UnpackedPairs;
  // Sums go to memory once a block, which is 16 products long.

  template <int kRows, typename Args>
  static BATON_INLINE void Tile(const Args& args, const TilePlace& tile) {
    const auto* panel = reinterpret_cast<const Panel*>(args.panel);
    RowPointers<int16_t, kRows> q(args.in.q + tile.first_row * args.in.q_stride, args.in.q_stride);
    RowPointers<float, kRows> scale(args.in.scale + tile.first_row * args.in.scale_stride,
                                    args.in.scale_stride);
    float* out = args.out + tile.first_row * args.out_stride;
    __m256 sum[kRows][2];
    StartRows<kRows>(out, args.out_stride, Continued(args), sum);
    Ahead<sizeof(Panel)> ahead(panel, args.blocks, tile);
    for (uint32_t b = 0; b < args.blocks; ++b) {
      __m256i dot[kRows][2];
      ahead.Step();
      const auto& block = BlockOf<Q8_0>(args, panel, b);
      BlockDots<kRows>(block, q, dot);
      UNROLL for (int h = 0; h < 2; ++h) {
        const __m256 d = block.Scale(h);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256 factor = _mm256_mul_ps(d, _mm256_broadcast_ss(scale[r]));
          sum[r][h] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(dot[r][h]), sum[r][h]);
        }
      }
      q.Advance(kBlock);
      scale.Advance(1);
    }
    StoreRows<kRows>(out, args.out_stride, sum, args.add);
  }

  template <int kRows, typename Weights>
  static BATON_INLINE void BlockDots(const Weights& weights, const RowPointers<int16_t, kRows>& q,
                                     __m256i (&dot)[kRows][2]) {
    UNROLL for (int pair = 0; pair < 16; ++pair) {
      const __m256i w[2] = {weights.Pair(pair, 0), weights.Pair(pair, 1)};
      UNROLL for (int r = 0; r < kRows; ++r) {
        const __m256i x = Broadcast4(q[r] + 2 * pair);
        UNROLL for (int h = 0; h < 2; ++h) {
          const __m256i product = _mm256_madd_epi16(w[h], x);
          if (pair == 0) {
            dot[r][h] = product;
          } else {
            Accumulate32(dot[r][h], product);
          }
        }
      }
    }
  }
};

}  // namespace

void Avx2LinearQ8_0(const QuantizedPanel<int16_t>& args) { RunQuantized<Q8_0>(args); }

}  // namespace baton::kernels::cpu
