#include "kernels/cpu/rope.h"

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
// pi/2 in three parts of 33 bits each, so that multiples below 2^20 are exact.
constexpr double kHalfPi1 = 0x1.921fb54400000p+0;
constexpr double kHalfPi2 = 0x1.0b4611a600000p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
constexpr double kTwoOverPi = 0.63661977236758134308;

// Nearest integer of |x| < 2^31, halves upwards in magnitude.
double Nearest(double x) {
  return static_cast<double>(static_cast<int64_t>(x < 0 ? x - 0.5 : x + 0.5));
}

// Taylor coefficients 1 / n!; the series below end under 2^-56 for |x| <= pi/4.
constexpr double kSinTerms[] = {1.0 / 121645100408832000,
                                1.0 / 355687428096000,
                                1.0 / 1307674368000,
                                1.0 / 6227020800,
                                1.0 / 39916800,
                                1.0 / 362880,
                                1.0 / 5040,
                                1.0 / 120,
                                1.0 / 6};
constexpr double kCosTerms[] = {1.0 / 6402373705728000,
                                1.0 / 20922789888000,
                                1.0 / 87178291200,
                                1.0 / 479001600,
                                1.0 / 3628800,
                                1.0 / 40320,
                                1.0 / 720,
                                1.0 / 24,
                                1.0 / 2};

// 1 - s (t0 - s (t1 - ...)) with the last term first in the array.
template <size_t kCount>
double Alternating(const double (&terms)[kCount], double s) {
  double sum = 0;
  for (const double term : terms) sum = (term - sum) * s;
  return 1.0 - sum;
}

double SinNear0(double x) { return x * Alternating(kSinTerms, x * x); }
double CosNear0(double x) { return Alternating(kCosTerms, x * x); }

// Natural logarithm of a number from 1 on, by Newton's iteration on ExactExp.
double Log(double x) {
  double y = 0;
  for (double power = x; power > 2; power /= 2) y += kLn2High + kLn2Low;
  for (int i = 0; i < 8; ++i) y += 2 * (x - ExactExp(y)) / (x + ExactExp(y));
  return y;
}

}  // namespace

double ExactExp(double x) {
  const double n = Nearest(x / (kLn2High + kLn2Low));
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1;
  for (int i = 20; i > 0; --i) sum = 1 + sum * r / i;
  double scale = 1;
  for (double i = 0; i < n; ++i) scale *= 2;
  for (double i = 0; i > n; --i) scale /= 2;
  return sum * scale;
}

SinCos ExactSinCos(double angle) {
  const double n = Nearest(angle * kTwoOverPi);
  const double r = ((angle - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
  const double sin = SinNear0(r);
  const double cos = CosNear0(r);
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

CpuRope::CpuRope(const RopeSpec& spec)
    : pairing_(spec.pairing), pairs_(spec.dims / 2), context_(spec.context) {
  cos_sin_.resize(size_t{context_} * spec.dims);
  const double log_base = Log(spec.base);
  for (uint32_t i = 0; i < pairs_; ++i) {
    const double factor = spec.factors.empty() ? 1.0 : static_cast<double>(spec.factors[i]);
    const double frequency = ExactExp(-log_base * (2.0 * i) / spec.dims) / factor;
    for (uint32_t position = 0; position < context_; ++position) {
      const SinCos value = ExactSinCos(position * frequency);
      float* row = &cos_sin_[size_t{position} * spec.dims];
      row[i] = static_cast<float>(value.cos);
      row[pairs_ + i] = static_cast<float>(value.sin);
    }
  }
}

void CpuRope::Rotate(const Tier& tier, uint32_t position, float* head) const {
  BATON_CHECK(position < context_);
  const float* cos = &cos_sin_[size_t{position} * 2 * pairs_];
  const bool neighbours = pairing_ == RopeSpec::Pairing::kNeighbours;
  (neighbours ? tier.rotate_neighbours : tier.rotate_halves)(cos, cos + pairs_, pairs_, head);
}

}  // namespace baton::kernels::cpu
