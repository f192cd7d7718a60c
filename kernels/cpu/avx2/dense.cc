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

// Sixteen registers hold twelve sums, the factors of one side and one of the other: the side with
// fewer is the one that is kept.
template <int kRows, int kParts, typename X, typename Values>
BATON_INLINE void AddProducts(__m256 (&sum)[kRows][kParts], const X& x, const Values& values) {
  if constexpr (kRows < kParts) {
    __m256 kept[kRows];
    UNROLL for (int r = 0; r < kRows; ++r) kept[r] = x(r);
    UNROLL for (int i = 0; i < kParts; ++i) {
      const __m256 value = values(i);
      UNROLL for (int r = 0; r < kRows; ++r) sum[r][i] = _mm256_fmadd_ps(kept[r], value, sum[r][i]);
    }
  } else {
    __m256 kept[kParts];
    UNROLL for (int i = 0; i < kParts; ++i) kept[i] = values(i);
    UNROLL for (int r = 0; r < kRows; ++r) {
      const __m256 factor = x(r);
      UNROLL for (int i = 0; i < kParts; ++i) {
        sum[r][i] = _mm256_fmadd_ps(factor, kept[i], sum[r][i]);
      }
    }
  }
}

template <int kPanels>
struct Dense {
  template <int kRows, typename B>
  static BATON_INLINE void Tile(const DensePanel<B>& args, const TilePlace& tile) {
    constexpr int kParts = 2 * kPanels;
    const float* a = args.a + tile.first_row * args.a_stride;
    float* out = args.out + tile.first_row * args.out_stride;
    __m256 sum[kRows][kParts];
    StartRows<kRows>(out, args.out_stride, args.store == DenseStore::kContinue, sum);
    const B* const* runs = args.runs;
    DenseAhead<B, kPanels> ahead(args, tile);
    for (uint32_t left = args.k; left > 0; ++runs) {
      const uint32_t count = left < args.run ? left : args.run;
      const B* b[kPanels];
      UNROLL for (int p = 0; p < kPanels; ++p) b[p] = runs[p * args.panel_runs];
      ahead.NextRun();
      size_t at = 0;
      for (uint32_t k = 0; k < count; ++k, at += args.b_stride, ++a) {
        ahead.Step(at);
        const auto values = [&](int i) { return Load8(b[i / 2] + at + i % 2 * 8); };
        const auto x = [&](int r) { return _mm256_broadcast_ss(a + r * args.a_stride); };
        AddProducts(sum, x, values);
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
  ForDenseTiles<Dense, 6, 6>(args, Narrow<B>);
}

template <typename B>
BATON_INLINE void Widen(const WidenPanel<B>& args) {
  for (uint32_t r = 0; r < args.rows; ++r) {
    UNROLL for (int h = 0; h < 2; ++h) {
      _mm256_storeu_ps(args.to + r * kPanel + 8 * h, Load8(args.from + r * args.stride + 8 * h));
    }
  }
}

}  // namespace

void Avx2DenseHalf(const DensePanel<uint16_t>& args) { Run(args); }
void Avx2DenseBFloat16(const DensePanel<BFloat16>& args) { Run(args); }
void Avx2DenseFloat(const DensePanel<float>& args) { Run(args); }
void Avx2DenseInt8(const DensePanel<int8_t>& args) { Run(args); }
void Avx2WidenHalf(const WidenPanel<uint16_t>& args) { Widen(args); }
void Avx2WidenInt8(const WidenPanel<int8_t>& args) { Widen(args); }

}  // namespace baton::kernels::cpu
