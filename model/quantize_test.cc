#include "model/quantize.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace baton::model {
namespace {

TEST(QuantizeTest, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = FloatFromHalf(static_cast<uint16_t>(half));
    if (std::isnan(value)) continue;
    EXPECT_EQ(HalfFromFloat(value), half);
  }
}

TEST(QuantizeTest, HalvesRoundToNearestEven) {
  EXPECT_EQ(HalfFromFloat(1.0f + 0x1p-11f), HalfFromFloat(1.0f));
  EXPECT_EQ(HalfFromFloat(1.0f + 3 * 0x1p-11f), HalfFromFloat(1.0f + 0x1p-9f));
  EXPECT_EQ(HalfFromFloat(65519.0f), 0x7bff);
  EXPECT_EQ(HalfFromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(HalfFromFloat(0x1p-25f), 0);
  EXPECT_EQ(HalfFromFloat(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(QuantizeTest, BlocksHaveTheSizesOfTheFormat) {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 20;
  for (const GgufTensorType type :
       {GgufTensorType::kF32, GgufTensorType::kF16, GgufTensorType::kQ8_0, GgufTensorType::kQ4_1}) {
    const GgufTypeTraits traits = *TensorTypeTraits(static_cast<uint32_t>(type));
    EXPECT_EQ(Quantize(values, type).size(), 64 / traits.block_elements * traits.block_bytes);
  }
}

}  // namespace
}  // namespace baton::model
