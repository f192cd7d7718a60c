// One row times two panels of F16, BF16 or F32 weights.
#include "kernels/cpu/neon/neon.h"
#include "kernels/cpu/neon/vector.h"

namespace baton::kernels::cpu {
namespace {

template <typename B>
BATON_INLINE void Pair(const DensePanel<B>& args) {
  const B* panels[2] = {*args.runs, *args.runs + size_t{args.k} * kPanel};
  float32x4_t sum[2][1][4];
  UNROLL for (int p = 0; p < 2; ++p) {
    UNROLL for (int part = 0; part < 4; ++part) sum[p][0][part] = vdupq_n_f32(0);
  }
  for (uint32_t k = 0; k < args.k; ++k) {
    const float32x4_t x = vdupq_n_f32(args.a[k]);
    UNROLL for (int p = 0; p < 2; ++p) {
      UNROLL for (int part = 0; part < 4; ++part) {
        const float32x4_t w = Load4(panels[p] + k * kPanel + 4 * part);
        sum[p][0][part] = vfmaq_f32(sum[p][0][part], x, w);
      }
    }
  }
  const bool add = args.store == DenseStore::kAdd;
  UNROLL for (int p = 0; p < 2; ++p) {
    Vector128::StoreRows<1>(args.out + p * kPanel, kPanel, sum[p], add);
  }
}

}  // namespace

void NeonPairHalf(const DensePanel<uint16_t>& args) { Pair(args); }
void NeonPairBFloat16(const DensePanel<BFloat16>& args) { Pair(args); }
void NeonPairFloat(const DensePanel<float>& args) { Pair(args); }

}  // namespace baton::kernels::cpu
