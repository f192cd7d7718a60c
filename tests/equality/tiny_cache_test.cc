// With a prefix cache the answers are those of computing everything, token by token and log
// probability by log probability, on a real (tiny) model with the cpu backend: the full product of
// cached lengths around block borders, what follows them, where they are held, chunk sizes and ways
// to sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "common/decoder_state.h"
#include "tests/equality/tiny_cluster.h"

namespace baton::worker {
namespace {

constexpr uint64_t kSeed = 20261130;

struct Place {
  Topology topology = Topology::kUnified;
  bool source = false;
  bool sink = false;
  std::string name() const {
    if (topology == Topology::kUnified) return "unified";
    return std::string("split") + (source ? ", at the source" : "") + (sink ? ", at the sink" : "");
  }
};

constexpr Place kPlaces[] = {
    {Topology::kUnified, false, true}, {Topology::kSplit, true, false},
    {Topology::kSplit, false, true},   {Topology::kSplit, true, true},
    {Topology::kSplit, false, false},
};

class TinyCacheTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::cout << "seed " << kSeed << std::endl;
    tiny_ = new TinyModel;
  }
  static void TearDownTestSuite() { delete tiny_; }

  // What the case gives without a cache.
  static void Expect(TinyCluster& uncached, Case& c) {
    std::vector<Case> alone = {c};
    ASSERT_NO_FATAL_FAILURE(uncached.Run(alone));
    c.expected = uncached.AnswersOf(alone[0]);
  }

  static TinyModel* tiny_;
};

TinyModel* TinyCacheTest::tiny_ = nullptr;

// The whole of one case: `held` of its tokens are cached, at the places.
void RunCached(TinyModel& tiny, const Place& place, uint32_t step_tokens, uint32_t held,
               const DecoderState& prefix, Case c) {
  TinyCluster cluster(tiny, place.topology, step_tokens);
  if (place.source) {
    ASSERT_NO_FATAL_FAILURE(cluster.RunAtSource(prefix));
  }
  if (place.sink) {
    ASSERT_NO_FATAL_FAILURE(cluster.RunAtSink(prefix));
  }
  std::vector<Case> alone = {c};
  ASSERT_NO_FATAL_FAILURE(cluster.Run(alone));
  const Answers answers = cluster.AnswersOf(alone[0]);
  ASSERT_EQ(answers.choices[0].tokens, c.expected.choices[0].tokens);
  ASSERT_TRUE(answers == c.expected) << "the tokens alone are equal";
  const auto length = static_cast<uint32_t>(c.state.prompt.size());
  const uint32_t whole = held / kTinyBlock * kTinyBlock;
  const uint32_t most =
      c.state.logprobs.prompt.has_value() ? 0 : (length - 1) / kTinyBlock * kTinyBlock;
  const bool computes = place.topology == Topology::kUnified || place.source;
  const Found found = cluster.FoundOf(alone[0]);
  ASSERT_EQ(found.not_computed, computes ? std::min(whole, most) : 0);
  if (place.topology == Topology::kSplit) {
    ASSERT_EQ(found.not_shipped, place.sink ? whole : 0);
  }
  cluster.ExpectAllFree();
}

TEST_F(TinyCacheTest, CachedIsUncached) {
  size_t combinations = 0;
  std::mt19937_64 random(kSeed);
  TinyCluster uncached(*tiny_, Topology::kUnified, 64);
  for (const uint32_t held : LengthsAroundBlocks(4)) {
    for (const uint32_t more : {0u, 1u, 15u, 16u, 17u, 40u}) {
      for (const Sampling sampling : {Sampling::kGreedy, Sampling::kSeeded, Sampling::kMixed}) {
        Case c = MakeCase(held + more, sampling, random);
        ASSERT_NO_FATAL_FAILURE(Expect(uncached, c));
        c.state.cache_namespace = "space";
        for (const Place& place : kPlaces) {
          for (const uint32_t step_tokens : {7u, 64u}) {
            SCOPED_TRACE(c.name() + ", " + std::to_string(held) + " held, " + place.name() +
                         ", steps of " + std::to_string(step_tokens));
            ASSERT_NO_FATAL_FAILURE(
                RunCached(*tiny_, place, step_tokens, held, PrefixOf(c, held), c));
            ++combinations;
          }
        }
      }
    }
  }
  std::cout << combinations << " combinations" << std::endl;
}

TEST_F(TinyCacheTest, TurnsOfAConversationFindEarlierAnswers) {
  std::mt19937_64 random(kSeed + 1);
  for (const Topology topology : {Topology::kUnified, Topology::kSplit}) {
    TinyCluster uncached(*tiny_, Topology::kUnified, 64);
    TinyCluster cached(*tiny_, topology, 64);
    Case turn = MakeCase(20, Sampling::kSeeded, random);
    turn.state.stop.max_tokens = 30;
    for (int i = 0; i < 5; ++i) {
      SCOPED_TRACE(i);
      turn.state.cache_namespace.clear();
      ASSERT_NO_FATAL_FAILURE(Expect(uncached, turn));
      turn.state.cache_namespace = "talk";
      std::vector<Case> alone = {turn};
      ASSERT_NO_FATAL_FAILURE(cached.Run(alone));
      ASSERT_TRUE(cached.AnswersOf(alone[0]) == turn.expected);
      const Found found = cached.FoundOf(alone[0]);
      const auto before = static_cast<uint32_t>(turn.state.prompt.size());
      // The question before it, and in a unified cluster (or at the sink) the answer but its last
      // token: in whole blocks.
      const uint32_t seen = i == 0 ? 0 : (before - 5 - 1) / kTinyBlock * kTinyBlock;
      EXPECT_EQ(topology == Topology::kUnified ? found.not_computed : found.not_shipped, seen);
      const std::vector<TokenId>& answer = turn.expected.choices[0].tokens;
      turn.state.prompt.insert(turn.state.prompt.end(), answer.begin(), answer.end());
      const Case question = MakeCase(5, Sampling::kGreedy, random);
      turn.state.prompt.insert(turn.state.prompt.end(), question.state.prompt.begin(),
                               question.state.prompt.end());
    }
  }
}

TEST_F(TinyCacheTest, CrowdsThatShareAPrefixInASmallPoolKeepTheirAnswers) {
  std::mt19937_64 random(kSeed + 2);
  TinyCluster uncached(*tiny_, Topology::kUnified, 64);
  std::vector<Case> cases;
  const Case stem = MakeCase(60, Sampling::kGreedy, random);
  for (int i = 0; i < 24; ++i) {
    Case c = MakeCase(1 + static_cast<uint32_t>(random() % 40), Sampling::kMixed, random);
    const auto shared = static_cast<ptrdiff_t>(random() % 61);
    c.state.prompt.insert(c.state.prompt.begin(), stem.state.prompt.begin(),
                          stem.state.prompt.begin() + shared);
    ASSERT_NO_FATAL_FAILURE(Expect(uncached, c));
    c.state.cache_namespace = i % 3 == 0 ? "a" : "b";
    cases.push_back(std::move(c));
  }
  for (const Topology topology : {Topology::kUnified, Topology::kSplit}) {
    TinyCluster cluster(*tiny_, topology, 40, 24);
    for (int round = 0; round < 4; ++round) {
      std::shuffle(cases.begin(), cases.end(), random);
      ASSERT_NO_FATAL_FAILURE(cluster.Run(cases));
      for (const Case& c : cases) ASSERT_TRUE(cluster.AnswersOf(c) == c.expected) << c.name();
      cluster.ExpectAllFree();
    }
  }
}

}  // namespace
}  // namespace baton::worker
