// One row times two panels of F16, BF16 or F32 weights.
#include <immintrin.h>

#include "kernels/cpu/avx512/avx512.h"
#include "kernels/cpu/avx512/vector.h"

namespace baton::kernels::cpu {
namespace {

constexpr size_t kAhead = 2048;  // bytes; the hardware alone leaves a third of the read rate unused

BATON_INLINE __m512 Load16(const uint16_t* p) { return LoadHalf16(p); }
BATON_INLINE __m512 Load16(const float* p) { return _mm512_loadu_ps(p); }
BATON_INLINE __m512 Load16(const BFloat16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

template <typename B>
BATON_INLINE void Pair(const DensePanel<B>& args) {
  const B* panels[2] = {*args.runs, *args.runs + size_t{args.k} * kPanel};
  __m512 sum[2][1][1] = {{{_mm512_setzero_ps()}}, {{_mm512_setzero_ps()}}};
  for (uint32_t k = 0; k < args.k; ++k) {
    const __m512 x = _mm512_set1_ps(args.a[k]);
    UNROLL for (int p = 0; p < 2; ++p) {
      const B* w = panels[p] + k * kPanel;
      __builtin_prefetch(reinterpret_cast<const char*>(w) + kAhead);
      sum[p][0][0] = _mm512_fmadd_ps(x, Load16(w), sum[p][0][0]);
    }
  }
  const bool add = args.store == DenseStore::kAdd;
  UNROLL for (int p = 0; p < 2; ++p)
      Vector512::StoreRows<1>(args.out + p * kPanel, kPanel, sum[p], add);
}

}  // namespace

void Avx512PairHalf(const DensePanel<uint16_t>& args) { Pair(args); }
void Avx512PairBFloat16(const DensePanel<BFloat16>& args) { Pair(args); }
void Avx512PairFloat(const DensePanel<float>& args) { Pair(args); }

}  // namespace baton::kernels::cpu
