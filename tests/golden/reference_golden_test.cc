// The reference backend against the published float64 forward pass: every listed logit within
// 1e-3, every listed layer value too.
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>

#include "gtest/gtest.h"
#include "model/model_harness.h"
#include "tests/golden/comparison.h"
#include "tests/golden/environment.h"
#include "tests/golden/oracle.h"

namespace baton::golden {
namespace {

using model::ModelHarness;

constexpr double kTolerance = 1e-3;
constexpr size_t kEverydayCases = 8;
constexpr uint32_t kChunk = 128;

std::unique_ptr<ModelHarness> Reference() {
  auto harness = ModelHarness::CreateForOneSequence(
      {.path = ModelPath(), .backend = "reference", .threads = 2, .context = 2048}, kChunk);
  EXPECT_TRUE(harness.ok()) << harness.status();
  return harness.ok() ? *std::move(harness) : nullptr;
}

double Norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

void ExpectLayer(const ExpectedLayer& expected, const std::vector<double>& actual) {
  for (size_t i = 0; i < expected.first16.size(); ++i) {
    EXPECT_NEAR(actual[i], expected.first16[i], kTolerance)
        << "after layer " << expected.after_layer << ", value " << i;
  }
  EXPECT_NEAR(Norm(actual), expected.norm, kTolerance) << "after layer " << expected.after_layer;
}

TEST(ReferenceGoldenTest, EveryLayerMatches) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  const auto layers = ReadLayersCase(OracleFolder());
  ASSERT_TRUE(layers.ok()) << layers.status();
  const auto harness = Reference();
  ASSERT_NE(harness, nullptr);
  const auto last_row = static_cast<uint32_t>(layers->prompt.size() - 1);
  uint32_t compared = 0;
  harness->Run({{0, layers->prompt}}, [&](uint32_t layer) {
    ExpectLayer(layers->layers[layer], harness->Residual(last_row));
    ++compared;
  });
  EXPECT_EQ(compared + 1, layers->layers.size());  // the last has passed the final norm
}

TEST(ReferenceGoldenTest, EveryListedLogitOfTheShortCasesMatches) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  const auto cases = ReadGreedyCases(OracleFolder());
  ASSERT_TRUE(cases.ok()) << cases.status();
  const auto harness = Reference();
  ASSERT_NE(harness, nullptr);
  Comparison total;
  for (size_t i = 0; i < kEverydayCases; ++i) {
    CompareCase((*cases)[i], kChunk, *harness, total);
  }
  std::cout << total.ToString() << "\n";
  EXPECT_LE(total.worst_logit, kTolerance);
  EXPECT_EQ(total.clear_mismatches, 0u);
}

}  // namespace
}  // namespace baton::golden
