// All 27 cases on both backends, the full distribution of one against the other, and perplexity.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/model_harness.h"
#include "tests/golden/comparison.h"
#include "tests/golden/environment.h"
#include "tests/golden/oracle.h"
#include "tests/golden/perplexity.h"

namespace baton::golden {
namespace {

using model::ModelHarness;

constexpr uint32_t kChunk = 256;
constexpr uint32_t kPositions = 2048;
constexpr double kReferenceTolerance = 1e-3;
constexpr double kMaxMeanKl = 0.0025;
constexpr double kMaxPerplexityError = 0.005;
// With an int8 cache.
constexpr double kMaxInt8MeanKl = 0.003;
constexpr double kMaxInt8PerplexityError = 0.01;

std::unique_ptr<ModelHarness> Harness(const std::string& backend,
                                      const std::string& kv_type = "auto") {
  auto harness = ModelHarness::CreateForOneSequence({.path = ModelPath(),
                                                     .backend = backend,
                                                     .kv_type = kv_type,
                                                     .threads = 2,
                                                     .context = kPositions},
                                                    kChunk);
  EXPECT_TRUE(harness.ok()) << harness.status();
  return harness.ok() ? *std::move(harness) : nullptr;
}

TEST(LongGoldenTest, AllCasesAgreeWithTheOracleAndTheBackendsWithEachOther) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  const auto cases = ReadGreedyCases(OracleFolder());
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_EQ(cases->size(), 27u);
  const auto reference = Harness("reference"), cpu = Harness("cpu");
  ASSERT_TRUE(reference != nullptr && cpu != nullptr);
  Comparison reference_total, cpu_total;
  double full_kl = 0;
  for (const GreedyCase& one : *cases) {
    const auto first = static_cast<uint32_t>(one.prompt.size() - 1);
    std::vector<std::vector<double>> exact;
    reference->Restart();
    reference->RunAll(one.TeacherForced(), kChunk, first, [&](std::vector<double> logits) {
      Compare(one.steps[exact.size()], logits, reference_total);
      exact.push_back(std::move(logits));
    });
    size_t step = 0;
    cpu->Restart();
    cpu->RunAll(one.TeacherForced(), kChunk, first, [&](const std::vector<double>& logits) {
      Compare(one.steps[step], logits, cpu_total);
      full_kl += FullKl(exact[step++], logits);
    });
  }
  full_kl /= static_cast<double>(cpu_total.positions);
  std::cout << "reference: " << reference_total.ToString() << "\ncpu: " << cpu_total.ToString()
            << "\nmean KL(reference || cpu), full vocabulary: " << full_kl << "\n";
  EXPECT_LE(reference_total.worst_logit, kReferenceTolerance);
  EXPECT_EQ(reference_total.clear_mismatches, 0u);
  EXPECT_EQ(cpu_total.clear_mismatches, 0u);
  EXPECT_LE(cpu_total.MeanKl(), kMaxMeanKl);
  EXPECT_LE(full_kl, 2 * kMaxMeanKl);  // the whole vocabulary, tails included
}

// The largest relative error of the published cases.
double WorstPerplexityError(const std::string& kv_type) {
  const auto cases = ReadPerplexityCases(OracleFolder());
  EXPECT_TRUE(cases.ok()) << cases.status();
  const auto cpu = Harness("cpu", kv_type);
  if (!cases.ok() || cpu == nullptr) return HUGE_VAL;
  double worst = 0;
  for (const PerplexityCase& one : *cases) {
    const auto tokens = TokensOfText(*cpu->model().file, one.text_path);
    if (!tokens.ok() || tokens->size() != one.tokens) {
      ADD_FAILURE() << one.text_path << ": " << tokens.status();
      return HUGE_VAL;
    }
    const double perplexity = Perplexity(*tokens, one.window, *cpu);
    const double error = perplexity / one.perplexity - 1;
    std::cout << one.text_path << ", windows of " << one.window << ", kv " << kv_type << ": "
              << perplexity << " (" << one.perplexity << ", " << 100 * error << " %)\n";
    worst = std::max(worst, std::fabs(error));
  }
  return worst;
}

TEST(LongGoldenTest, PerplexityOfTwoTexts) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  EXPECT_LE(WorstPerplexityError("f16"), kMaxPerplexityError);
}

TEST(LongGoldenTest, PerplexityOfTwoTextsWithAnInt8Cache) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  EXPECT_LE(WorstPerplexityError("int8"), kMaxInt8PerplexityError);
}

TEST(LongGoldenTest, AllCasesWithAnInt8CacheAgreeWithTheOracle) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  const auto cases = ReadGreedyCases(OracleFolder());
  ASSERT_TRUE(cases.ok()) << cases.status();
  const auto cpu = Harness("cpu", "int8");
  ASSERT_NE(cpu, nullptr);
  Comparison total;
  for (const GreedyCase& one : *cases) CompareCase(one, kChunk, *cpu, total);
  std::cout << "cpu, kv int8: " << total.ToString() << "\n";
  EXPECT_EQ(total.clear_mismatches, 0u);
  EXPECT_LE(total.MeanKl(), kMaxInt8MeanKl);
}

}  // namespace
}  // namespace baton::golden
