#include <immintrin.h>

#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/avx512/vector.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE __m512 FromBFloat16(__m256i v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

BATON_INLINE __m512 FromInt8(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)); }

// Columns beyond `lanes` are neither read nor written. `All` knows that there are none.
struct All {
  static BATON_INLINE All Of(uint32_t) { return {}; }
  BATON_INLINE __m512 Load(const float* p) const { return _mm512_loadu_ps(p); }
  BATON_INLINE __m512 Load(const uint16_t* p) const { return LoadHalf16(p); }
  BATON_INLINE __m512 Load(const BFloat16* p) const {
    return FromBFloat16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  BATON_INLINE __m512 Load(const int8_t* p) const {
    return FromInt8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  BATON_INLINE void Store(float* p, __m512 v) const { _mm512_storeu_ps(p, v); }
};

struct Some {
  __mmask16 lanes;
  static BATON_INLINE Some Of(uint32_t cols) { return {LanesBelow(cols)}; }
  BATON_INLINE __m512 Load(const float* p) const { return _mm512_maskz_loadu_ps(lanes, p); }
  BATON_INLINE __m512 Load(const uint16_t* p) const {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, p));
  }
  BATON_INLINE __m512 Load(const BFloat16* p) const {
    return FromBFloat16(_mm256_maskz_loadu_epi16(lanes, p));
  }
  BATON_INLINE __m512 Load(const int8_t* p) const {
    return FromInt8(_mm_maskz_loadu_epi8(lanes, p));
  }
  BATON_INLINE void Store(float* p, __m512 v) const { _mm512_mask_storeu_ps(p, lanes, v); }
};

template <typename Columns, int kPanels>
struct Dense {
  template <int kRows, typename B>
  static BATON_INLINE void Tile(const DensePanel<B>& args, const TilePlace& tile) {
    const Columns columns = Columns::Of(args.cols);
    const float* a = args.a + tile.first_row * args.a_stride;
    float* out = args.out + tile.first_row * args.out_stride;
    const bool continues = args.store == DenseStore::kContinue;
    __m512 sum[kRows][kPanels];
    UNROLL for (int r = 0; r < kRows; ++r) {
      UNROLL for (int p = 0; p < kPanels; ++p) {
        const float* begin = out + r * args.out_stride + p * kPanel;
        sum[r][p] = continues ? columns.Load(begin) : _mm512_setzero_ps();
      }
    }
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
        __m512 values[kPanels];
        UNROLL for (int p = 0; p < kPanels; ++p) values[p] = columns.Load(b[p] + at);
        UNROLL for (int r = 0; r < kRows; ++r) {
          const __m512 x = _mm512_set1_ps(a[r * args.a_stride]);
          UNROLL for (int p = 0; p < kPanels; ++p) {
            sum[r][p] = _mm512_fmadd_ps(x, values[p], sum[r][p]);
          }
        }
      }
      left -= count;
    }
    const bool adds = args.store == DenseStore::kAdd;
    UNROLL for (int r = 0; r < kRows; ++r) {
      UNROLL for (int p = 0; p < kPanels; ++p) {
        float* to = out + r * args.out_stride + p * kPanel;
        columns.Store(to, adds ? _mm512_add_ps(columns.Load(to), sum[r][p]) : sum[r][p]);
      }
    }
  }
};

template <int kPanels>
using Whole = Dense<All, kPanels>;

template <typename B>
BATON_INLINE void Run(const DensePanel<B>& args) {
  ForDenseTiles<Whole, 12, 24>(
      args, [](const DensePanel<B>& narrow) { ForTiles<Dense<Some, 1>, 12>(narrow); });
}

}  // namespace

void Avx512DenseHalf(const DensePanel<uint16_t>& args) { Run(args); }
void Avx512DenseBFloat16(const DensePanel<BFloat16>& args) { Run(args); }
void Avx512DenseFloat(const DensePanel<float>& args) { Run(args); }
void Avx512DenseInt8(const DensePanel<int8_t>& args) { Run(args); }
void Avx512WidenInt8(const WidenPanel<int8_t>& args) {
  for (uint32_t r = 0; r < args.rows; ++r) {
    _mm512_storeu_ps(args.to + r * kPanel, All{}.Load(args.from + r * args.stride));
  }
}

}  // namespace baton::kernels::cpu
