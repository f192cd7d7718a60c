// One instruction again and again on independent sums. Included by one file per instruction set.
#ifndef BATON_BENCHMARKS_REPEAT_H_
#define BATON_BENCHMARKS_REPEAT_H_

#include <stdint.h>

namespace baton::benchmarks {

// More sums than any of the instructions has cycles of latency times units.
inline constexpr int kSums = 12;

// step(sum, a, b) is the next sum. The empty asm hides from the compiler that the operands never
// change; without it one product would serve all sums.
template <typename Vector, typename Step>
[[gnu::always_inline]] inline void Repeat(uint64_t iterations, Vector zero, Step step) {
  Vector sums[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = zero;
  Vector a = zero;
  Vector b = zero;
  for (uint64_t n = 0; n < iterations; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      asm volatile("" : "+v"(a), "+v"(b));
      sums[i] = step(sums[i], a, b);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) asm volatile("" : : "v"(sums[i]));
}

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_REPEAT_H_
