// All 27 cases on both backends, the full distribution of one against the other, and perplexity.
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

std::unique_ptr<ModelHarness> Harness(const std::string& backend) {
  ModelHarness::Options options;
  options.load.path = ModelPath();
  options.load.backend = backend;
  options.load.threads = 2;
  options.load.context = kPositions;
  options.max_rows = kChunk;
  options.positions = kPositions;
  auto harness = ModelHarness::Create(options);
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

TEST(LongGoldenTest, PerplexityOfTwoTexts) {
  BATON_NEEDS_MODEL_AND_ORACLES();
  const auto cases = ReadPerplexityCases(OracleFolder());
  ASSERT_TRUE(cases.ok()) << cases.status();
  const auto cpu = Harness("cpu");
  ASSERT_NE(cpu, nullptr);
  for (const PerplexityCase& one : *cases) {
    const auto tokens = TokensOfText(*cpu->model().file, one.text_path);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    ASSERT_EQ(tokens->size(), one.tokens) << one.text_path;
    const double perplexity = Perplexity(*tokens, one.window, *cpu);
    const double error = perplexity / one.perplexity - 1;
    std::cout << one.text_path << ", windows of " << one.window << ": " << perplexity << " ("
              << one.perplexity << ", " << 100 * error << " %)\n";
    EXPECT_LE(std::fabs(error), kMaxPerplexityError);
  }
}

}  // namespace
}  // namespace baton::golden
