#include "kernels/cpu/neon/neon.h"
#include "kernels/cpu/neon/vector.h"

namespace baton::kernels::cpu {
namespace {

BATON_INLINE float ToFloat(uint16_t half) {
  __fp16 value;
  __builtin_memcpy(&value, &half, sizeof value);
  return value;
}
BATON_INLINE float ToFloat(BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof result);
  return result;
}
BATON_INLINE float ToFloat(float value) { return value; }
BATON_INLINE float ToFloat(int8_t value) { return value; }

template <int kPanels>
struct Dense {
  template <int kRows, typename B>
  static BATON_INLINE void Tile(const DensePanel<B>& args, const TilePlace& tile) {
    constexpr int kParts = 4 * kPanels;
    const float* a = args.a + tile.first_row * args.a_stride;
    float* out = args.out + tile.first_row * args.out_stride;
    const bool continues = args.store == DenseStore::kContinue;
    float32x4_t sum[kRows][kParts];
    UNROLL for (int r = 0; r < kRows; ++r) {
      UNROLL for (int part = 0; part < kParts; ++part) {
        sum[r][part] = continues ? vld1q_f32(out + r * args.out_stride + 4 * part) : vdupq_n_f32(0);
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
        float32x4_t values[kParts];
        UNROLL for (int part = 0; part < kParts; ++part) {
          values[part] = Load4(b[part / 4] + at + part % 4 * 4);
        }
        UNROLL for (int r = 0; r < kRows; ++r) {
          const float32x4_t x = vdupq_n_f32(a[r * args.a_stride]);
          UNROLL for (int part = 0; part < kParts; ++part) {
            sum[r][part] = vfmaq_f32(sum[r][part], x, values[part]);
          }
        }
      }
      left -= count;
    }
    Vector128::StoreRows<kRows>(out, args.out_stride, sum, args.store == DenseStore::kAdd);
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
        sum = __builtin_fmaf(args.a[r * args.a_stride + k], ToFloat(row[n]), sum);
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
    UNROLL for (int part = 0; part < 4; ++part) {
      vst1q_f32(args.to + r * kPanel + 4 * part, Load4(args.from + r * args.stride + 4 * part));
    }
  }
}

}  // namespace

void NeonDenseHalf(const DensePanel<uint16_t>& args) { Run(args); }
void NeonDenseBFloat16(const DensePanel<BFloat16>& args) { Run(args); }
void NeonDenseFloat(const DensePanel<float>& args) { Run(args); }
void NeonDenseInt8(const DensePanel<int8_t>& args) { Run(args); }
void NeonWidenHalf(const WidenPanel<uint16_t>& args) { Widen(args); }
void NeonWidenInt8(const WidenPanel<int8_t>& args) { Widen(args); }

}  // namespace baton::kernels::cpu
