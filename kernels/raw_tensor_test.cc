#include "kernels/raw_tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "kernels/quant_oracle.h"

namespace baton::kernels {
namespace {

class DequantizeTest : public testing::TestWithParam<TensorType> {};

TEST_P(DequantizeTest, HasTheBitsOfTheReferenceImplementation) {
  const auto oracle = QuantOracle(InfoOf(GetParam())->name);
  if (!oracle.has_value()) GTEST_SKIP() << "no quantisation oracle";
  ASSERT_FALSE(oracle->dequantized.empty());
  std::vector<float> actual(oracle->dequantized.size());
  Dequantize(GetParam(), oracle->quantized, actual);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(oracle->dequantized[i]))
        << "value " << i << ": " << actual[i] << " and " << oracle->dequantized[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, DequantizeTest,
                         testing::Values(TensorType::kF16, TensorType::kBF16, TensorType::kQ4_0,
                                         TensorType::kQ4_1, TensorType::kQ8_0),
                         [](const auto& type) { return std::string(InfoOf(type.param)->name); });

TEST(TensorTypeTest, UnknownNumbersAreNoType) {
  for (uint32_t number : {4u, 5u, 6u, 7u, 12u, 29u, 31u, 0xffffffffu}) {
    EXPECT_FALSE(InfoOf(static_cast<TensorType>(number)).has_value()) << number;
  }
}

}  // namespace
}  // namespace baton::kernels
