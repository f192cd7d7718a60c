// A choice depends on nothing but its number, its seed, the prompt and the parameters: choice c of
// n is choice c of any other n, split, unified, alone and in a batch, token by token and log
// probability by log probability, on a real (tiny) model; for prompts around every block border.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "common/decoder_state.h"
#include "tests/equality/tiny_cluster.h"

namespace baton::worker {
namespace {

constexpr uint64_t kSeed = 20261130;
constexpr int kMaxBlocks = 4;
constexpr uint32_t kBlocks = 640;

Case WithChoices(const Case& all, size_t n) {
  Case c = all;
  c.state.choices.resize(n);
  c.expected.choices.resize(n);
  return c;
}

// The tiny model is sure of itself: choices that differ, and end at different times.
void Spread(DecoderState& state, std::mt19937_64& random) {
  state.sampling.temperature = 2;
  state.sampling.top_k = 0;
  state.sampling.top_p = 1;
  state.stop.min_tokens = 2;  // the first tokens are not the last: there is a hand-over
  for (int i = 0; i < 20; ++i) {
    state.stop.stop_token_ids.push_back(static_cast<TokenId>(random() % 250));
  }
}

class TinyChoicesTest : public testing::Test {
 protected:
  // Of each length a seeded and a mixed request with as many choices as there may be. Choice 0 is
  // what a request of one choice gives; the others are those of 16, unified and alone.
  static void SetUpTestSuite() {
    std::cout << "seed " << kSeed << std::endl;
    tiny_ = new TinyModel;
    cases_ = new std::vector<Case>;
    std::mt19937_64 random(kSeed);
    TinyCluster unified(*tiny_, Topology::kUnified, 64, kBlocks);
    for (const uint32_t length : LengthsAroundBlocks(kMaxBlocks)) {
      for (const Sampling sampling : {Sampling::kSeeded, Sampling::kMixed}) {
        std::vector<Case> alone = {MakeCase(length, sampling, random)};
        alone[0].state.choices.resize(kMaxChoices);
        if (sampling == Sampling::kSeeded) Spread(alone[0].state, random);
        unified.Run(alone);
        alone[0].expected = unified.AnswersOf(alone[0]);
        cases_->push_back(alone[0]);
      }
    }
  }
  static void TearDownTestSuite() {
    delete cases_;
    delete tiny_;
  }

  static void ExpectRight(TinyCluster& cluster, std::vector<Case>& together) {
    ASSERT_NO_FATAL_FAILURE(cluster.Run(together));
    for (const Case& c : together) {
      const Answers answers = cluster.AnswersOf(c);
      for (size_t i = 0; i < c.n(); ++i) {
        ASSERT_EQ(answers.choices[i].tokens, c.expected.choices[i].tokens)
            << c.name() << ", choice " << i;
      }
      ASSERT_TRUE(answers == c.expected) << c.name() << ": the tokens alone are equal";
      ASSERT_TRUE(answers.Finished()) << c.name();
      ASSERT_NO_FATAL_FAILURE(cluster.ExpectCrossed(c)) << c.name();
    }
    cluster.ExpectAllFree();
  }

  static void ExpectSameAlone(Topology topology) {
    for (const uint32_t step_tokens : {1u, 7u, 64u}) {
      TinyCluster cluster(*tiny_, topology, step_tokens, kBlocks);
      for (const Case& all : *cases_) {
        for (const size_t n : {1u, 2u, 3u, 8u, 16u}) {
          std::vector<Case> alone = {WithChoices(all, n)};
          SCOPED_TRACE("steps of " + std::to_string(step_tokens) + ": " + alone[0].name());
          ASSERT_NO_FATAL_FAILURE(ExpectRight(cluster, alone));
        }
      }
    }
  }

  // Requests of any number of choices in the same steps.
  static void ExpectSameInACrowd(Topology topology) {
    std::mt19937_64 random(kSeed);
    for (const uint32_t step_tokens : {7u, 64u, 2048u}) {
      TinyCluster cluster(*tiny_, topology, step_tokens, kBlocks);
      for (int round = 0; round < 20; ++round) {
        std::vector<Case> crowd;
        for (int i = 0; i < 8; ++i) {
          const Case& all = (*cases_)[random() % cases_->size()];
          crowd.push_back(WithChoices(all, 1 + random() % kMaxChoices));
        }
        SCOPED_TRACE("steps of " + std::to_string(step_tokens) + ", round " +
                     std::to_string(round));
        ASSERT_NO_FATAL_FAILURE(ExpectRight(cluster, crowd));
      }
    }
  }

  static TinyModel* tiny_;
  static std::vector<Case>* cases_;
};

TinyModel* TinyChoicesTest::tiny_ = nullptr;
std::vector<Case>* TinyChoicesTest::cases_ = nullptr;

TEST_F(TinyChoicesTest, ChoicesDiffer) {
  for (const Case& c : *cases_) {
    if (c.sampling != Sampling::kSeeded) continue;
    std::set<std::vector<TokenId>> distinct;
    for (const Answer& choice : c.expected.choices) distinct.insert(choice.tokens);
    EXPECT_GE(distinct.size(), 14u) << c.name();
  }
}

TEST_F(TinyChoicesTest, ChoicesEndAtDifferentTimes) {
  size_t uneven = 0;
  for (const Case& c : *cases_) {
    std::set<size_t> lengths;
    for (const Answer& choice : c.expected.choices) lengths.insert(choice.tokens.size());
    uneven += lengths.size() > 1 ? 1 : 0;
  }
  EXPECT_GE(uneven, 10u);
}

TEST_F(TinyChoicesTest, UnifiedAlone) { ExpectSameAlone(Topology::kUnified); }

TEST_F(TinyChoicesTest, SplitAlone) { ExpectSameAlone(Topology::kSplit); }

TEST_F(TinyChoicesTest, UnifiedInACrowd) { ExpectSameInACrowd(Topology::kUnified); }

TEST_F(TinyChoicesTest, SplitInACrowd) { ExpectSameInACrowd(Topology::kSplit); }

}  // namespace
}  // namespace baton::worker
