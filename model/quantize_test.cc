#include "model/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/quant_oracle.h"

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

TEST(QuantizeTest, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(BFloat16FromFloat(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(BFloat16FromFloat(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(BFloat16FromFloat(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(BFloat16FromFloat(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(QuantizeTest, EveryFormatHasTheBytesOfTheReferenceImplementation) {
  for (const GgufTensorType type : kQuantizeFormats) {
    if (type == GgufTensorType::kF32) continue;
    const std::string_view name = TensorTypeTraits(static_cast<uint32_t>(type))->name;
    const auto oracle = kernels::QuantOracle(name);
    if (!oracle.has_value()) GTEST_SKIP() << "no quantisation oracle";
    const std::string actual = Quantize(oracle->input, type);
    ASSERT_EQ(actual.size(), oracle->quantized.size()) << name;
    EXPECT_EQ(std::memcmp(actual.data(), oracle->quantized.data(), actual.size()), 0) << name;
  }
}

}  // namespace
}  // namespace baton::model
