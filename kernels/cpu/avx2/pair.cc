// One row times two panels of F16, BF16 or F32 weights.
#include <immintrin.h>

#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/avx2/tiles.h"

namespace baton::kernels::cpu {
namespace {

constexpr size_t kAhead = 2048;  // bytes; the hardware alone leaves a third of the read rate unused

template <typename B>
BATON_INLINE void Pair(const DensePanel<B>& args) {
  const B* panels[2] = {*args.runs, *args.runs + size_t{args.k} * kPanel};
  __m256 sum[2][1][2];
  UNROLL for (int p = 0; p < 2; ++p) sum[p][0][0] = sum[p][0][1] = _mm256_setzero_ps();
  for (uint32_t k = 0; k < args.k; ++k) {
    const __m256 x = _mm256_broadcast_ss(args.a + k);
    UNROLL for (int p = 0; p < 2; ++p) {
      const B* w = panels[p] + k * kPanel;
      __builtin_prefetch(reinterpret_cast<const char*>(w) + kAhead);
      sum[p][0][0] = _mm256_fmadd_ps(x, Load8(w), sum[p][0][0]);
      sum[p][0][1] = _mm256_fmadd_ps(x, Load8(w + 8), sum[p][0][1]);
    }
  }
  const bool add = args.store == DenseStore::kAdd;
  UNROLL for (int p = 0; p < 2; ++p) StoreRows<1>(args.out + p * kPanel, kPanel, sum[p], add);
}

}  // namespace

void Avx2PairHalf(const DensePanel<uint16_t>& args) { Pair(args); }
void Avx2PairBFloat16(const DensePanel<BFloat16>& args) { Pair(args); }
void Avx2PairFloat(const DensePanel<float>& args) { Pair(args); }

}  // namespace baton::kernels::cpu
