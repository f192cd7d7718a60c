#include "benchmarks/placement_replay.h"

#include <cmath>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"

namespace baton::benchmarks {
namespace {

using router::PlacementPolicy;

// Conversations of up to 8 turns that share one beginning and come in between each other.
std::vector<TraceRow> Conversations(uint64_t seed, size_t conversations) {
  SeededRandom random(seed);
  std::vector<TraceRow> rows;
  uint64_t next_piece = 1;
  for (size_t i = 0; i < conversations; ++i) {
    TraceRow turn;
    turn.arrival = random.Unit() * static_cast<double>(conversations) * 0.9;
    turn.pieces = {0};
    for (uint64_t turns = 1 + random.Below(8); turns > 0; --turns) {
      for (uint64_t more = 1 + random.Below(16); more > 0; --more) {
        turn.pieces.push_back(next_piece++);
      }
      turn.tokens = turn.pieces.size() * 512 + random.Below(512);
      rows.push_back(turn);
      turn.arrival += 5 + random.Unit() * 60;
    }
  }
  return rows;
}

ReplayResult With(PlacementPolicy policy, const std::vector<TraceRow>& trace) {
  ReplayOptions options;
  options.workers = 4;
  options.cache_pieces = 1500;
  options.policy = policy;
  return Replay(trace, options);
}

TEST(PlacementReplayTest, PlacementBySecondsBeatsLeastWorkAndQueuedAndNewBlocks) {
  const std::vector<TraceRow> trace = Conversations(3, 400);
  const ReplayResult seconds = With(PlacementPolicy::kPredictedSeconds, trace);
  const ReplayResult work = With(PlacementPolicy::kLeastWork, trace);
  const ReplayResult blocks = With(PlacementPolicy::kQueuedAndNewBlocks, trace);
  EXPECT_EQ(seconds.requests, trace.size());
  EXPECT_LT(seconds.mean_ttft, 0.85 * work.mean_ttft);
  EXPECT_LT(seconds.p90_ttft, 0.85 * work.p90_ttft);
  EXPECT_LE(seconds.mean_ttft, blocks.mean_ttft);
  EXPECT_LE(seconds.p90_ttft, blocks.p90_ttft);
  EXPECT_GT(seconds.hit_rate, 2 * work.hit_rate);
}

TEST(PlacementReplayTest, TheSameTraceGivesTheSameResult) {
  const std::vector<TraceRow> trace = Conversations(4, 50);
  const ReplayResult once = With(PlacementPolicy::kPredictedSeconds, trace);
  const ReplayResult again = With(PlacementPolicy::kPredictedSeconds, trace);
  EXPECT_EQ(once.mean_ttft, again.mean_ttft);
  EXPECT_EQ(once.hit_rate, again.hit_rate);
}

// What the index says is what the caches hold, but for what changed while requests waited.
TEST(PlacementReplayTest, PredictedHitsAreNearlyTheRealOnes) {
  const ReplayResult result = With(PlacementPolicy::kPredictedSeconds, Conversations(5, 200));
  EXPECT_GT(result.hit_rate, 0.3);
  EXPECT_NEAR(result.predicted_hit_rate, result.hit_rate, 0.03);
}

// Everybody asks for one long prefix: it must not stay where it was computed first.
TEST(PlacementReplayTest, AHotPrefixIsServedByAllWorkersUnderLoad) {
  std::vector<TraceRow> rows;
  SeededRandom random(6);
  for (uint64_t i = 0; i < 400; ++i) {
    TraceRow row;
    row.arrival = static_cast<double>(i) * 0.05;
    for (uint64_t piece = 0; piece < 20; ++piece) row.pieces.push_back(piece);
    row.pieces.push_back(1000 + i);
    row.pieces.push_back(5000 + i);
    row.tokens = row.pieces.size() * 512;
    rows.push_back(row);
  }
  const ReplayResult result = With(PlacementPolicy::kPredictedSeconds, rows);
  EXPECT_LT(result.most_on_one, rows.size() / 2);
  EXPECT_GT(result.hit_rate, 0.8);
}

// One prompt of so many tokens a second, each of its own: a light load for two workers.
ReplayResult Paced(uint64_t tokens, ReplayOptions options) {
  std::vector<TraceRow> rows;
  for (uint64_t i = 0; i < 600; ++i) rows.push_back({static_cast<double>(i), tokens, {i}});
  options.workers = 2;
  options.measured = true;
  return Replay(rows, options);
}

TEST(PlacementReplayTest, AWorkerWhoseFirstPromptMetAColdMachineGetsItsShare) {
  for (const uint64_t tokens : {100u, 512u, 2048u}) {
    SCOPED_TRACE(tokens);
    const ReplayResult result = Paced(tokens, {.first_prompt_slower = 50});
    EXPECT_GT(result.on_first_worker, 200u);
    EXPECT_LT(result.on_first_worker, 400u);
  }
}

// It is tried now and then, and no more than that.
TEST(PlacementReplayTest, AWorkerThatIsReallySlowGetsAFewPromptsOfMany) {
  const double alone = Paced(4096, {}).mean_ttft;
  for (const double slower : {2.0, 10.0, 50.0}) {
    SCOPED_TRACE(slower);
    const ReplayResult result = Paced(4096, {.first_worker_slower = slower});
    EXPECT_GE(result.on_first_worker, 2u);
    EXPECT_LT(result.on_first_worker, 60u);
    EXPECT_LT(result.mean_ttft, alone + 2.0 / router::kTrialPause);
  }
}

// A machine that was slow for longer than its first steps is found out as well.
TEST(PlacementReplayTest, AWorkerThatWasSlowForLongIsFoundToBeFastAgain) {
  const ReplayResult result = Paced(8 * 512, {.first_prompt_slower = 20});
  EXPECT_GT(result.on_first_worker, 100u);
}

// M/D/1: the mean of waiting and service with Poisson arrivals at one worker.
TEST(PlacementReplayTest, OneWorkerWithPoissonArrivalsWaitsAsTheFormulaSays) {
  SeededRandom random(7);
  std::vector<TraceRow> rows;
  const double rate = 1.0;
  double now = 0;
  for (uint64_t i = 0; i < 40000; ++i) {
    now += -std::log(1 - random.Unit()) / rate;
    TraceRow row;
    row.arrival = now;
    row.tokens = 8192;
    row.pieces = {i};
    rows.push_back(row);
  }
  ReplayOptions options;
  options.workers = 1;
  const double service = options.cost.Seconds(8192, 0);
  const double expected = service + rate * service * service / (2 * (1 - rate * service));
  EXPECT_NEAR(Replay(rows, options).mean_ttft, expected, 0.03 * expected);
}

}  // namespace
}  // namespace baton::benchmarks
