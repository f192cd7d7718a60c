// Split equals unified, token by token and log probability by log probability, on a real (tiny)
// model with the cpu backend: the full product of prompt lengths around block borders, ways to
// sample, chunk sizes, alone and in a crowd. Transport: in_process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/decoder_state.h"
#include "tests/equality/tiny_cluster.h"

namespace baton::worker {
namespace {

constexpr uint64_t kSeed = 20260719;
constexpr int kMaxBlocks = 6;
constexpr uint32_t kOthers = 16;
constexpr uint32_t kWhole = 2048;  // all prompts of a crowd in one step
constexpr uint32_t kExpectedStepTokens = 64;

class TinyProductTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::cout << "seed " << kSeed << std::endl;
    tiny_ = new TinyModel;
    cases_ = new std::vector<Case>;
    std::mt19937_64 random(kSeed);
    for (const uint32_t length : LengthsAroundBlocks(kMaxBlocks)) {
      for (const Sampling sampling : {Sampling::kGreedy, Sampling::kSeeded, Sampling::kMixed}) {
        cases_->push_back(MakeCase(length, sampling, random));
      }
    }
    TinyCluster unified(*tiny_, Topology::kUnified, kExpectedStepTokens);
    for (Case& c : *cases_) {
      std::vector<Case> alone = {c};
      unified.Run(alone);
      c.expected = unified.AnswersOf(alone[0]);
      BATON_CHECK(c.sampling == Sampling::kMixed ||
                  c.expected.choices[0].tokens.size() == c.state.stop.max_tokens);
    }
  }
  static void TearDownTestSuite() {
    delete cases_;
    delete tiny_;
  }

  // The case among so many others, at a random place.
  static std::vector<Case> InCrowd(size_t index, uint32_t others, std::mt19937_64& random) {
    std::vector<size_t> order;
    for (size_t i = 0; i < cases_->size(); ++i) {
      if (i != index) order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), random);
    order.resize(others);
    order.insert(order.begin() + static_cast<ptrdiff_t>(random() % (others + 1)), index);
    std::vector<Case> crowd;
    for (const size_t i : order) crowd.push_back((*cases_)[i]);
    return crowd;
  }

  // Every case as the one that is looked at; the others must be right too.
  static void ExpectSameTokens(Topology topology, uint32_t others) {
    size_t combinations = 0;
    size_t comparisons = 0;
    std::mt19937_64 random(kSeed + others);
    for (const uint32_t step_tokens : {1u, 7u, 16u, 64u, kWhole}) {
      TinyCluster cluster(*tiny_, topology, step_tokens);
      for (size_t i = 0; i < cases_->size(); ++i, ++combinations) {
        std::vector<Case> together = InCrowd(i, others, random);
        SCOPED_TRACE("steps of " + std::to_string(step_tokens) + ", combination " +
                     std::to_string(i) + ": " + (*cases_)[i].name());
        ASSERT_NO_FATAL_FAILURE(cluster.Run(together));
        for (const Case& c : together) {
          const Answers answers = cluster.AnswersOf(c);
          ASSERT_EQ(answers.choices[0].tokens, c.expected.choices[0].tokens) << c.name();
          ASSERT_TRUE(answers == c.expected) << c.name() << ": the tokens alone are equal";
          ASSERT_TRUE(answers.Finished()) << c.name();
          ASSERT_NO_FATAL_FAILURE(cluster.ExpectCrossed(c)) << c.name();
          ++comparisons;
        }
        cluster.ExpectAllFree();
      }
    }
    std::cout << combinations << " combinations, " << comparisons << " answers compared"
              << std::endl;
  }

  static TinyModel* tiny_;
  static std::vector<Case>* cases_;
};

TinyModel* TinyProductTest::tiny_ = nullptr;
std::vector<Case>* TinyProductTest::cases_ = nullptr;

TEST_F(TinyProductTest, ExpectedAnswersDependOnThePromptAndTheSeed) {
  std::vector<std::vector<TokenId>> starts;
  for (const Case& c : *cases_) {
    if (c.sampling == Sampling::kMixed) continue;
    const std::vector<TokenId>& tokens = c.expected.choices[0].tokens;
    starts.emplace_back(tokens.begin(), tokens.begin() + 4);
  }
  const size_t all = starts.size();
  std::sort(starts.begin(), starts.end());
  const auto distinct = std::unique(starts.begin(), starts.end()) - starts.begin();
  EXPECT_EQ(static_cast<size_t>(distinct), all);
}

TEST_F(TinyProductTest, MixedCasesAreMixed) {
  size_t ended_by_a_stop = 0, with_logprobs = 0, with_prompt_logprobs = 0;
  for (const Case& c : *cases_) {
    const Answer& answer = c.expected.choices[0];
    ended_by_a_stop += answer.finish == v1::FINISH_REASON_STOP ? 1 : 0;
    with_logprobs += answer.logprobs[0].empty() ? 0 : 1;
    with_prompt_logprobs += c.expected.prompt_logprobs.empty() ? 0 : 1;
    if (c.state.logprobs.prompt.has_value()) {
      EXPECT_EQ(c.expected.prompt_logprobs.size(), c.state.prompt.size() - 1);
    }
    EXPECT_GE(answer.tokens.size(), 2u);
  }
  EXPECT_GE(ended_by_a_stop, 2u);
  EXPECT_GE(with_logprobs, 5u);
  EXPECT_GE(with_prompt_logprobs, 5u);
}

TEST_F(TinyProductTest, SplitAlone) { ExpectSameTokens(Topology::kSplit, 0); }

TEST_F(TinyProductTest, SplitInACrowd) { ExpectSameTokens(Topology::kSplit, kOthers); }

TEST_F(TinyProductTest, UnifiedAlone) { ExpectSameTokens(Topology::kUnified, 0); }

TEST_F(TinyProductTest, UnifiedInACrowd) { ExpectSameTokens(Topology::kUnified, kOthers); }

}  // namespace
}  // namespace baton::worker
