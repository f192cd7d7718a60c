#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/tiles.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE float ToFloat(uint16_t half) { return _cvtsh_ss(half); }
BATON_INLINE float ToFloat(BFloat16 value) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(value) << 16)));
}
BATON_INLINE float ToFloat(float value) { return value; }
BATON_INLINE float ToFloat(int8_t value) { return value; }

BATON_INLINE float Fma(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}

struct Dense {
  template <int kRows, typename B>
  static BATON_INLINE void Tile(const DensePanel<B>& args, const TilePlace& tile) {
    const float* a = args.a + tile.first_row * args.a_stride;
    float* out = args.out + tile.first_row * args.out_stride;
    const bool continues = args.store == DenseStore::kContinue;
    __m256 sum[kRows][2];
    UNROLL for (int r = 0; r < kRows; ++r) {
      UNROLL for (int h = 0; h < 2; ++h) {
        sum[r][h] =
            continues ? _mm256_loadu_ps(out + r * args.out_stride + 8 * h) : _mm256_setzero_ps();
      }
    }
    const B* const* run = args.runs;
    auto ahead = AheadOf(args, tile);
    for (uint32_t left = args.k; left > 0; ++run) {
      const uint32_t count = left < args.run ? left : args.run;
      const B* b = *run;
      for (uint32_t k = 0; k < count; ++k, b += args.b_stride, ++a) {
        ahead.Step();
        const __m256 b0 = Load8(b);
        const __m256 b1 = Load8(b + 8);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const __m256 x = _mm256_broadcast_ss(a + r * args.a_stride);
          sum[r][0] = _mm256_fmadd_ps(x, b0, sum[r][0]);
          sum[r][1] = _mm256_fmadd_ps(x, b1, sum[r][1]);
        }
      }
      left -= count;
    }
    StoreRows<kRows>(out, args.out_stride, sum, args.store == DenseStore::kAdd);
  }
};

// Fewer than 16 columns: a head dimension that is no multiple of 16.
template <typename B>
void Narrow(const DensePanel<B>& args) {
  for (uint32_t r = 0; r < args.rows; ++r) {
    float* out = args.out + r * args.out_stride;
    for (uint32_t n = 0; n < args.cols; ++n) {
      float sum = args.store == DenseStore::kContinue ? out[n] : 0.0f;
      for (uint32_t k = 0; k < args.k; ++k) {
        const B* row = args.runs[k / args.run] + (k % args.run) * args.b_stride;
        sum = Fma(args.a[r * args.a_stride + k], ToFloat(row[n]), sum);
      }
      out[n] = args.store == DenseStore::kAdd ? out[n] + sum : sum;
    }
  }
}

template <typename B>
BATON_INLINE void Run(const DensePanel<B>& args) {
  if (args.cols < kPanel) return Narrow(args);
  ForTiles<Dense, 6>(args);
}

}  // namespace

void Avx2DenseHalf(const DensePanel<uint16_t>& args) { Run(args); }
void Avx2DenseBFloat16(const DensePanel<BFloat16>& args) { Run(args); }
void Avx2DenseFloat(const DensePanel<float>& args) { Run(args); }
void Avx2DenseInt8(const DensePanel<int8_t>& args) { Run(args); }

}  // namespace baton::kernels::cpu
