// Whatever happens to a request for want of room, its answers are those that it gets alone in an
// empty pool, token by token and log probability by log probability, on a real (tiny) model with
// the cpu backend: the full product of cached lengths around block borders, where they are held, or
// were when the request was placed, with sequences preempted and reservations revoked.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/decoder_state.h"
#include "common/ids.h"
#include "kv/block_demand.h"
#include "tests/equality/tiny_cluster.h"

namespace baton::worker {
namespace {

constexpr uint64_t kSeed = 20261201;
constexpr uint32_t kBlocks = 20;  // of a tight pool

enum class Evicted { kNowhere, kAtSink, kEverywhere };

// Where the beginning of the prompt is held when the request is placed, and where it is given up
// before the request gets its room.
struct Place {
  Topology topology = Topology::kUnified;
  bool source = false;
  bool sink = false;
  Evicted evicted = Evicted::kNowhere;
  std::string name() const {
    static constexpr const char* kEvicted[] = {"", ", evicted at the sink", ", evicted"};
    return std::string(topology == Topology::kUnified ? "unified" : "split") +
           (source ? ", at the source" : "") + (sink ? ", at the sink" : "") +
           kEvicted[static_cast<int>(evicted)];
  }
};

constexpr Place kPlaces[] = {
    {Topology::kUnified, false, false},
    {Topology::kUnified, false, true},
    {Topology::kUnified, false, true, Evicted::kAtSink},
    {Topology::kSplit, false, false},
    {Topology::kSplit, true, false},
    {Topology::kSplit, false, true},
    {Topology::kSplit, true, true},
    {Topology::kSplit, true, true, Evicted::kAtSink},
    {Topology::kSplit, true, true, Evicted::kEverywhere},
};

// What is done to the request.
struct Pressure {
  bool preempted = false;
  bool revoked = false;
  std::string name() const {
    return std::string(preempted ? ", preempted" : "") + (revoked ? ", revoked" : "");
  }
};

constexpr Pressure kPressures[] = {{false, false}, {true, false}, {false, true}, {true, true}};

void ExpectRight(const TinyCluster& cluster, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const Answers answers = cluster.AnswersOf(c);
    for (size_t i = 0; i < c.n(); ++i) {
      ASSERT_EQ(answers.choices[i].tokens, c.expected.choices[i].tokens) << c.name();
    }
    ASSERT_TRUE(answers == c.expected) << c.name() << ": the tokens alone are equal";
  }
  cluster.ExpectAllFree();
}

class TinyPressureTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::cout << "seed " << kSeed << std::endl;
    tiny_ = new TinyModel;
  }
  static void TearDownTestSuite() { delete tiny_; }

  // What the case gives alone, without a cache, in an empty pool.
  static void Expect(TinyCluster& uncached, Case& c) {
    std::vector<Case> alone = {c};
    alone[0].state.cache_namespace.clear();
    ASSERT_NO_FATAL_FAILURE(uncached.Run(alone));
    c.expected = uncached.AnswersOf(alone[0]);
    ASSERT_TRUE(c.expected.Finished());
  }

  static TinyModel* tiny_;
};

TinyModel* TinyPressureTest::tiny_ = nullptr;

Case Older(uint32_t prompt, uint32_t max_tokens, size_t n, int seconds) {
  std::mt19937_64 random(kSeed + prompt);
  Case older = MakeCase(prompt, Sampling::kSeeded, random);
  older.state.stop.max_tokens = max_tokens;
  older.state.choices.resize(n);
  older.state.age = std::chrono::seconds(seconds);
  older.state.cache_namespace = "older";
  return older;
}

// Takes the whole pool at once, and is gone after two tokens.
Case Filler() { return Older(kBlocks * kTinyBlock - 1, 2, 1, 100); }
// Begins with eight blocks and ends with all of them: whoever runs beside it to the end gives way.
Case Grower() { return Older(kTinyBlock - 1, 60, 4, 50); }

// A request that outlives the grower and always fits beside its beginning.
Case MakePressedCase(uint32_t length, Sampling sampling, size_t n, std::mt19937_64& random) {
  Case c = MakeCase(length, sampling, random);
  c.state.stop = {};
  c.state.stop.max_tokens = 64;
  c.state.stop.ignore_eos = true;
  c.state.choices.resize(n);
  return c;
}

// How one combination differs from the case alone.
struct Setting {
  Place place;
  Pressure pressure;
  uint32_t held = 0;  // tokens of the prompt
  uint32_t step_tokens = 64;
  int revoke_after = 0;  // turns
  std::string name() const {
    return std::to_string(held) + " held, " + place.name() + pressure.name() + ", steps of " +
           std::to_string(step_tokens);
  }
};

struct Done {
  uint64_t combinations = 0, preempted = 0, revoked = 0;
};

// The case beside the older ones, whose answers are known.
void RunPressed(TinyModel& tiny, const Setting& setting, Case c, std::vector<Case> older,
                Done& done) {
  TinyCluster cluster(tiny, setting.place.topology, setting.step_tokens, kBlocks);
  const DecoderState prefix = PrefixOf(c, setting.held);
  if (setting.place.source) {
    ASSERT_NO_FATAL_FAILURE(cluster.RunAtSource(prefix));
  }
  if (setting.place.sink) {
    ASSERT_NO_FATAL_FAILURE(cluster.RunAtSink(prefix));
  }
  if (setting.pressure.revoked) cluster.RevokeFirstAttemptsAfter(setting.revoke_after);
  older.push_back(std::move(c));
  ASSERT_NO_FATAL_FAILURE(cluster.Run(older));
  ASSERT_NO_FATAL_FAILURE(ExpectRight(cluster, older));
  const bool preempted = cluster.preemptions() > 0, revoked = cluster.revocations() > 0;
  ASSERT_LE(preempted, setting.pressure.preempted) << "nobody else lacks room";
  ASSERT_GE(preempted || revoked, setting.pressure.preempted) << "the grower has a victim";
  ++done.combinations;
  done.preempted += preempted ? 1 : 0;
  done.revoked += revoked ? 1 : 0;
}

TEST_F(TinyPressureTest, CachedPreemptedAndRevokedIsUncached) {
  std::mt19937_64 random(kSeed);
  TinyCluster uncached(*tiny_, Topology::kUnified, 64);
  Case filler = Filler(), grower = Grower();
  ASSERT_NO_FATAL_FAILURE(Expect(uncached, filler));
  ASSERT_NO_FATAL_FAILURE(Expect(uncached, grower));
  Done done;
  for (const uint32_t held : LengthsAroundBlocks(4)) {
    for (const uint32_t more : {0u, 1u, 17u}) {
      for (const Sampling sampling : {Sampling::kGreedy, Sampling::kSeeded, Sampling::kMixed}) {
        Case c = MakePressedCase(held + more, sampling, 1 + random() % 2, random);
        ASSERT_NO_FATAL_FAILURE(Expect(uncached, c));
        c.state.cache_namespace = "space";
        for (const Place& place : kPlaces) {
          for (const Pressure& pressure : kPressures) {
            if (pressure.revoked && place.topology == Topology::kUnified) continue;
            const Setting setting{place, pressure, held, random() % 2 == 0 ? 7u : 64u,
                                  static_cast<int>(random() % 20)};
            SCOPED_TRACE(c.name() + ", " + setting.name());
            std::vector<Case> older;
            if (place.evicted != Evicted::kNowhere) {
              older.push_back(filler);
              older.back().at_decode = place.evicted == Evicted::kAtSink;
            }
            if (pressure.preempted) {
              older.push_back(grower);
              // Behind the filler on its way, or it would have room before it.
              older.back().at_decode = place.evicted != Evicted::kEverywhere;
            }
            ASSERT_NO_FATAL_FAILURE(RunPressed(*tiny_, setting, c, std::move(older), done));
          }
        }
      }
    }
  }
  std::cout << done.combinations << " combinations, preempted in " << done.preempted
            << ", revoked in " << done.revoked << std::endl;
  EXPECT_GT(done.preempted, done.combinations / 3);
  EXPECT_GT(done.revoked, done.combinations / 4);
}

TEST_F(TinyPressureTest, TwoThatNeedTheLastBlockDoNotFreeze) {
  std::mt19937_64 random(kSeed + 1);
  TinyCluster uncached(*tiny_, Topology::kUnified, 64);
  constexpr uint32_t kPrompt = 20, kTokens = 76;
  const uint32_t need = *kv::BlocksNeeded(kPrompt, 1, kTokens, kTinyBlock);
  std::vector<Case> cases;
  for (int i = 0; i < 2; ++i) {
    cases.push_back(MakePressedCase(kPrompt, Sampling::kSeeded, 1, random));
    cases.back().state.stop.max_tokens = kTokens;
    ASSERT_NO_FATAL_FAILURE(Expect(uncached, cases.back()));
  }
  for (const Topology topology : {Topology::kUnified, Topology::kSplit}) {
    for (const bool cached : {false, true}) {
      for (uint32_t blocks = need; blocks <= 2 * need; ++blocks) {
        SCOPED_TRACE(std::to_string(blocks) + " blocks");
        TinyCluster cluster(*tiny_, topology, 64, blocks);
        for (Case& c : cases) c.state.cache_namespace = cached ? "space" : "";
        ASSERT_NO_FATAL_FAILURE(cluster.Run(cases));
        ASSERT_NO_FATAL_FAILURE(ExpectRight(cluster, cases));
        // With one block too few the younger one waits with what it has; below, it gives that up.
        EXPECT_EQ(cluster.preemptions() + cluster.revocations() > 0, blocks + 1 < 2 * need);
      }
    }
  }
}

// The most steps in a row of which the oldest request that has not ended gets no token.
size_t LongestWaitOfTheOldest(const TinyCluster& cluster, const std::vector<Case>& by_age) {
  std::map<AttemptId, size_t> left;
  for (const Case& c : by_age) {
    for (const Answer& choice : c.expected.choices) left[c.state.attempt] += choice.tokens.size();
  }
  size_t oldest = 0, waited = 0, longest = 0;
  for (const std::vector<AttemptId>& step : cluster.DecodeSteps()) {
    bool got = false;
    for (const AttemptId& attempt : step) {
      --left[attempt];
      got = got || attempt == by_age[oldest].state.attempt;
    }
    waited = got ? 0 : waited + 1;
    longest = std::max(longest, waited);
    while (oldest + 1 < by_age.size() && left[by_age[oldest].state.attempt] == 0) ++oldest;
  }
  return longest;
}

TEST_F(TinyPressureTest, ACrowdInFortyPercentOfItsRoomAlwaysServesItsOldest) {
  std::mt19937_64 random(kSeed + 2);
  TinyCluster uncached(*tiny_, Topology::kUnified, 64);
  std::vector<Case> by_age;
  uint32_t demand = 0;
  for (int i = 0; i < 60; ++i) {
    const auto length = static_cast<uint32_t>(1 + random() % 60);
    by_age.push_back(MakePressedCase(length, static_cast<Sampling>(i % 3), 1, random));
    Case& c = by_age.back();
    c.state.stop.max_tokens = static_cast<uint32_t>(40 + random() % 60);
    c.state.age = std::chrono::milliseconds(1000 - i);
    demand += *kv::BlocksNeeded(length, 1, c.state.stop.max_tokens, kTinyBlock);
    ASSERT_NO_FATAL_FAILURE(Expect(uncached, c));
    c.state.cache_namespace = i % 2 == 0 ? "" : "space";
  }
  for (const Topology topology : {Topology::kUnified, Topology::kSplit}) {
    TinyCluster cluster(*tiny_, topology, 64, demand * 2 / 5);
    ASSERT_NO_FATAL_FAILURE(cluster.Run(by_age));
    ASSERT_NO_FATAL_FAILURE(ExpectRight(cluster, by_age));
    std::cout << demand << " blocks wanted, " << demand * 2 / 5
              << " there: " << cluster.preemptions() << " preemptions, " << cluster.revocations()
              << " revocations, the oldest waits for " << LongestWaitOfTheOldest(cluster, by_age)
              << " steps at most" << std::endl;
    EXPECT_GT(cluster.preemptions(), 5u);
    // Its prompt at first, or what it computes again when it was preempted before it was the
    // oldest.
    EXPECT_LE(LongestWaitOfTheOldest(cluster, by_age), 8u);
  }
}

}  // namespace
}  // namespace baton::worker
