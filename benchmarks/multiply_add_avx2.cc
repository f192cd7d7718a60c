#include <immintrin.h>

#include "benchmarks/multiply_add_tables.h"
#include "benchmarks/repeat.h"

namespace baton::benchmarks {
namespace {

void Maddubs(uint64_t iterations) {
  Repeat(iterations, _mm256_setzero_si256(), [](__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
  });
}

void Pmaddwd(uint64_t iterations) {
  Repeat(iterations, _mm256_setzero_si256(), [](__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  });
}

void Fma(uint64_t iterations) {
  Repeat(iterations, _mm256_setzero_ps(),
         [](__m256 sum, __m256 a, __m256 b) { return _mm256_fmadd_ps(a, b, sum); });
}

}  // namespace

const MultiplyAdd kAvx2MultiplyAdds[] = {
    {"maddubs", 32 * kSums, Maddubs}, {"pmaddwd", 16 * kSums, Pmaddwd}, {"fma", 8 * kSums, Fma}};

}  // namespace baton::benchmarks
