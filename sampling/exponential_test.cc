#include "sampling/exponential.h"

#include <gtest/gtest.h>

#include <cmath>

namespace baton::sampling {
namespace {

TEST(ExponentialTest, IsExpToTheLastDigits) {
  for (double x = 0; x < 699; x += 0.0371) {
    const double expected = std::exp(-x);
    // What the polynomial leaves out, and n * ln 2 in two parts, whose error grows with x.
    EXPECT_NEAR(ExpOfMinus(x) / expected, 1, 4e-13 * (1 + x)) << x;
  }
  EXPECT_EQ(ExpOfMinus(0), 1);
}

TEST(ExponentialTest, LnIsItsInverse) {
  EXPECT_EQ(LnOf(1), 0);
  for (double x = 1; x < 1e15; x = x * 1.0173 + 1e-9) {
    EXPECT_NEAR(LnOf(x), std::log(x), 4e-16 * std::log(x) + 2e-16) << x;
  }
}

}  // namespace
}  // namespace baton::sampling
