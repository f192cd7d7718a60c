// exp and ln of the sampler: plain double arithmetic in one fixed order, no libm, so that every
// machine gives the same bits (docs/numerics.md, "Sampling").
#ifndef BATON_SAMPLING_EXPONENTIAL_H_
#define BATON_SAMPLING_EXPONENTIAL_H_

#include <bit>
#include <cstdint>
#include <initializer_list>

namespace baton::sampling {

// exp(-x) for 0 <= x < 700. Always inline, and through 32-bit integers, so that loops over it
// become vectors of any instruction set.
[[gnu::always_inline]] inline double ExpOfMinus(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const auto n = static_cast<int32_t>(x * kLog2E + 0.5);
  const auto count = static_cast<double>(n);
  const double r = (count * kLn2High - x) + count * kLn2Low;  // |r| <= ln 2 / 2
  double p = 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 1.0 / 2;
  p = p * r + 1.0;
  p = p * r + 1.0;
  return p * std::bit_cast<double>(int64_t{1023 - n} << 52);
}

// ln(x) for normal x >= 1.
inline double LnOf(double x) {
  constexpr double kLn2 = 0.6931471805599453;
  constexpr double kSqrt2 = 1.4142135623730951;
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1023} << 52));
  if (m > kSqrt2) {
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1) / (m + 1);  // ln m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172
  const double square = s * s;
  double sum = 1.0 / 21;
  for (double odd : {19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0}) {
    sum = sum * square + 1 / odd;
  }
  return exponent * kLn2 + 2 * s * sum;
}

}  // namespace baton::sampling

#endif  // BATON_SAMPLING_EXPONENTIAL_H_
