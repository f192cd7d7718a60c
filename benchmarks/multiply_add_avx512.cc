#include <immintrin.h>

#include "benchmarks/multiply_add_tables.h"
#include "benchmarks/repeat.h"

namespace baton::benchmarks {
namespace {

void Dpbusd(uint64_t iterations) {
  Repeat(iterations, _mm512_setzero_si512(),
         [](__m512i sum, __m512i a, __m512i b) { return _mm512_dpbusd_epi32(sum, a, b); });
}

void Dpwssd(uint64_t iterations) {
  Repeat(iterations, _mm512_setzero_si512(),
         [](__m512i sum, __m512i a, __m512i b) { return _mm512_dpwssd_epi32(sum, a, b); });
}

void Fma(uint64_t iterations) {
  Repeat(iterations, _mm512_setzero_ps(),
         [](__m512 sum, __m512 a, __m512 b) { return _mm512_fmadd_ps(a, b, sum); });
}

}  // namespace

const MultiplyAdd kAvx512MultiplyAdds[] = {{"dpbusd_512", 64 * kSums, Dpbusd},
                                           {"dpwssd_512", 32 * kSums, Dpwssd},
                                           {"fma_512", 16 * kSums, Fma}};

}  // namespace baton::benchmarks
