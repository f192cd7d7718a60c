#include "kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace baton::kernels {
namespace {

TEST(HalfTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = HalfToFloat(static_cast<Half>(bits));
    if (std::isfinite(value)) {
      EXPECT_EQ(FloatToHalf(value), bits);
    } else if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    }
  }
}

TEST(HalfTest, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = HalfToFloat(static_cast<Half>(bits));
    const double high = HalfToFloat(static_cast<Half>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    const Half even = static_cast<Half>(bits + (bits & 1));
    EXPECT_EQ(FloatToHalf(middle), even) << bits;
    EXPECT_EQ(FloatToHalf(std::nextafterf(middle, 0.0f)), bits);
    EXPECT_EQ(FloatToHalf(-std::nextafterf(middle, 1e9f)), (bits + 1) | 0x8000);
  }
}

TEST(HalfTest, SaturatesInsteadOfOverflowing) {
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xfbff);
  EXPECT_EQ(FloatToHalf(std::numeric_limits<float>::infinity()), 0x7bff);
}

}  // namespace
}  // namespace baton::kernels
