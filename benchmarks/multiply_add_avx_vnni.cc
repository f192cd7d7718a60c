#include <immintrin.h>

#include "benchmarks/multiply_add_tables.h"
#include "benchmarks/repeat.h"

namespace baton::benchmarks {
namespace {

void Dpbusd(uint64_t iterations) {
  Repeat(iterations, _mm256_setzero_si256(),
         [](__m256i sum, __m256i a, __m256i b) { return _mm256_dpbusd_avx_epi32(sum, a, b); });
}

void Dpwssd(uint64_t iterations) {
  Repeat(iterations, _mm256_setzero_si256(),
         [](__m256i sum, __m256i a, __m256i b) { return _mm256_dpwssd_avx_epi32(sum, a, b); });
}

}  // namespace

const MultiplyAdd kAvxVnniMultiplyAdds[] = {{"dpbusd", 32 * kSums, Dpbusd},
                                            {"dpwssd", 16 * kSums, Dpwssd}};

}  // namespace baton::benchmarks
