// The cpu backend against the published float64 forward pass, teacher-forced: its greedy choice
// wherever the oracle is clear, and its distribution.
#include <iostream>

#include "gtest/gtest.h"
#include "model/model_harness.h"
#include "tests/golden/comparison.h"
#include "tests/golden/environment.h"
#include "tests/golden/oracle.h"

namespace baton::golden {
namespace {

constexpr size_t kEverydayCases = 8;
constexpr uint32_t kChunk = 64;
constexpr double kMaxMeanKl = 0.0025;

TEST(CpuGoldenTest, ShortCasesAgreeWithTheOracle) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  const auto cases = ReadGreedyCases(OracleFolder());
  ASSERT_TRUE(cases.ok()) << cases.status();
  model::ModelHarness::Options options;
  options.load.path = ModelPath();
  options.load.threads = 2;
  options.max_rows = kChunk;
  const auto harness = model::ModelHarness::Create(options);
  ASSERT_TRUE(harness.ok()) << harness.status();
  Comparison total;
  for (size_t i = 0; i < kEverydayCases; ++i) CompareCase((*cases)[i], kChunk, **harness, total);
  std::cout << total.ToString() << "\n";
  EXPECT_EQ(total.clear_mismatches, 0u);
  EXPECT_LE(total.MeanKl(), kMaxMeanKl);
}

}  // namespace
}  // namespace baton::golden
