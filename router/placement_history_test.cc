// What workers hold of a prompt, and what they were seen to take, decide where it goes.
#include <algorithm>
#include <chrono>
#include <vector>

#include "common/time.h"
#include "gtest/gtest.h"
#include "router/placement.h"
#include "router/placement_fixture.h"

namespace baton::router {
namespace {

class PlacementHistoryTest : public PlacementTest {};

TEST_F(PlacementHistoryTest, APromptGoesWhereItsBeginningIsHeld) {
  const Held held{{0, 480, 0, 480}};
  const Placement placement = PlaceOn(workers_, held.Request());
  EXPECT_EQ(placement.source, 1u);
  EXPECT_EQ(placement.sinks, std::vector<size_t>({3, 2}));
  EXPECT_EQ(placement.cached_tokens, 480u);
}

// 1000 tokens a second: what is held is worth 0.48 s, and not a queue that is longer.
TEST_F(PlacementHistoryTest, AHotPrefixSpreadsWhenTheQueueCostsMoreThanComputingIt) {
  const Held held{{0, 480, 0, 0}};
  workers_[1].queued_prefill_tokens = 450;
  EXPECT_EQ(PlaceOn(workers_, held.Request()).source, 1u);
  workers_[1].queued_prefill_tokens = 510;
  EXPECT_EQ(PlaceOn(workers_, held.Request()).source, 0u);
  EXPECT_EQ(PlaceOn(workers_, held.Request()).cached_tokens, 0u);
}

TEST_F(PlacementHistoryTest, RequestsOfAHotPrefixSpreadOverAllAsTheyComeFaster) {
  const Held held{{480, 0, 0, 0}};
  std::vector<int> placed(2);
  for (int request = 0; request < 64; ++request) {
    const size_t source = *PlaceOn(workers_, held.Request()).source;
    ++placed[source];
    workers_[source].queued_prefill_tokens += 512 - held.tokens[source];
  }
  EXPECT_GT(placed[0], 50);
  EXPECT_GE(placed[1], 3);
}

// The last token is computed also when all is held, for its logits.
TEST_F(PlacementHistoryTest, OneTokenOfAPromptIsAlwaysLeft) {
  const Held held{{512, 4096, 512, 512}};
  const Placement placement = PlaceOn(workers_, held.Request());
  EXPECT_EQ(placement.cached_tokens, 511u);
  EXPECT_EQ(placement.source, 0u);
}

// Its attention reaches over all of the prompt: the end of a long one is worth more than its
// beginning.
TEST_F(PlacementHistoryTest, WhatIsLeftOfALongPromptIsDearer) {
  for (WorkerView& worker : workers_) worker.step_times.prompt_key = 1e-5;
  const Held held{{256, 0, 0, 0}};
  workers_[0].queued_prefill_tokens = 800;  // 256 tokens and 256^2 / 2 keys take 0.58 s
  EXPECT_EQ(PlaceOn(workers_, held.Request()).source, 1u);
  workers_[0].queued_prefill_tokens = 400;
  EXPECT_EQ(PlaceOn(workers_, held.Request()).source, 0u);
}

TEST_F(PlacementHistoryTest, OnlyWhatTheSinkDoesNotHoldIsMoved) {
  PlacementOptions options;
  options.kv_bytes_per_token = 1e6;
  for (WorkerView& worker : workers_) worker.transfer_bytes_per_second = 1e9;
  workers_[2].streams = workers_[2].choices = 1;
  // Moving 512 tokens takes half a second, a good part of what decoding costs.
  const Held held{{0, 0, 512, 0}};
  EXPECT_EQ(PlaceOn(workers_, held.Request(), options).sinks, std::vector<size_t>({2, 3}));
  const Held nothing{{0, 0, 0, 0}};
  EXPECT_EQ(PlaceOn(workers_, nothing.Request(), options).sinks, std::vector<size_t>({3, 2}));
}

TEST_F(PlacementHistoryTest, ASinkThatHoldsThePromptDoesNotGetEveryStream) {
  const Held held{{0, 0, 512, 0}};
  for (int request = 0; request < 32; ++request) {
    WorkerView& sink = workers_[PlaceOn(workers_, held.Request()).sinks.front()];
    ++sink.streams;
    ++sink.choices;
  }
  EXPECT_GE(workers_[2].streams, 16u);
  EXPECT_GE(workers_[3].streams, 10u);
}

TEST_F(PlacementHistoryTest, WithoutPrefillWorkersTheDecodeWorkerThatHoldsThePromptServes) {
  workers_[0].ready = workers_[1].ready = false;
  const Held held{{0, 0, 0, 496}};
  const Placement placement = PlaceOn(workers_, held.Request());
  EXPECT_EQ(placement.sinks, std::vector<size_t>({3}));
  EXPECT_EQ(placement.cached_tokens, 496u);
}

// All ask at once, in any order: who stands first sees an idle worker beside its own.
TEST_F(PlacementHistoryTest, ConversationsThatAskAtOnceStayWhereTheyAreHeld) {
  for (WorkerView& worker : workers_) worker.step_times = {.step = 0.005, .decode_row = 0.001};
  std::vector<size_t> holders = {2, 2, 3, 3};
  do {
    for (const size_t i : {2, 3}) workers_[i].streams = workers_[i].choices = 0;
    for (const size_t holder : holders) {
      Held held{{0, 0, 0, 0}};
      held.tokens[holder] = 480;
      const size_t sink = PlaceOn(workers_, held.Request()).sinks.front();
      EXPECT_EQ(sink, holder);
      ++workers_[sink].streams;
      ++workers_[sink].choices;
    }
  } while (std::next_permutation(holders.begin(), holders.end()));
}

TEST_F(PlacementHistoryTest, AConversationLeavesAHolderThatHasTwoRequestsMore) {
  for (WorkerView& worker : workers_) worker.step_times = {.step = 0.005, .decode_row = 0.001};
  workers_[2].streams = workers_[2].choices = 2;
  EXPECT_EQ(PlaceOn(workers_, Held{{0, 0, 480, 0}}.Request()).sinks.front(), 3u);
  // A beginning that it shares with many is no reason to be worse off.
  workers_[2].streams = workers_[2].choices = 1;
  EXPECT_EQ(PlaceOn(workers_, Held{{0, 0, 240, 0}}.Request()).sinks.front(), 3u);
  EXPECT_EQ(PlaceOn(workers_, Held{{0, 0, 272, 0}}.Request()).sinks.front(), 2u);
}

TEST_F(PlacementHistoryTest, LeastWorkLooksAtNobodysCache) {
  PlacementOptions options;
  options.policy = PlacementPolicy::kLeastWork;
  const Held held{{0, 480, 0, 480}};
  const Placement placement = PlaceOn(workers_, held.Request(), options);
  EXPECT_EQ(placement.source, 0u);
  EXPECT_EQ(placement.sinks, std::vector<size_t>({2, 3}));
  EXPECT_EQ(placement.cached_tokens, 0u);
}

// Whatever the workers' speeds and what they say of their queues.
TEST_F(PlacementHistoryTest, QueuedAndNewBlocksCountsBlocks) {
  PlacementOptions options;
  options.policy = PlacementPolicy::kQueuedAndNewBlocks;
  workers_[0].prefill_tokens_per_second = 1e6;
  workers_[1].prefill_tokens_per_second = 1;
  workers_[1].queued_prefill_tokens = 100000;
  workers_[0].new_tokens_in_flight = 801;  // 51 blocks, and all 32 are new: 83
  const Held held{{0, 160, 0, 0}};         // 22 are new
  workers_[1].new_tokens_in_flight = 800;
  EXPECT_EQ(PlaceOn(workers_, held.Request(), options).source, 1u);
  workers_[1].new_tokens_in_flight = 1200;
  EXPECT_EQ(PlaceOn(workers_, held.Request(), options).source, 0u);
}

// The first prompt met a cold machine, and who looks slow gets no other to show that it is not.
TEST_F(PlacementHistoryTest, AnIdleSourceThatMeasuredFewStepsCountsAsFastAsTheBest) {
  workers_[0].prefill_tokens_per_second = 50;
  workers_[1].prefill_tokens_per_second = 1000;
  workers_[1].last_prompt = Time(Duration(5));
  workers_[0].prompt_steps = kFewSteps - 1;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 0u);
  // One at a time.
  workers_[0].prompts_in_flight = 1;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
  workers_[0].prompts_in_flight = 0;
  workers_[0].queued_prefill_tokens = 1;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
  // It has shown what it is.
  workers_[0].queued_prefill_tokens = 0;
  workers_[0].prompt_steps = kFewSteps;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
}

TEST_F(PlacementHistoryTest, ASlowIdleSourceIsTriedAfterAPauseThatGrowsWithWhatItCosts) {
  workers_[0].prefill_tokens_per_second = 100;  // 0.64 s, 0.576 s more than the other
  workers_[1].prefill_tokens_per_second = 1000;
  const auto after = [&](double seconds, uint64_t tokens) {
    PlacementOptions options;
    options.now =
        Time(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
    workers_[1].last_prompt = options.now;
    return *PlaceOn(workers_, Request(tokens), options).source;
  };
  const double pause = 0.576 * kTrialPause * 2;
  EXPECT_EQ(after(0.99 * pause, 64), 1u);
  EXPECT_EQ(after(1.01 * pause, 64), 0u);
  EXPECT_EQ(after(1.01 * pause, 128), 1u);
  EXPECT_EQ(after(2.02 * pause, 128), 0u);
}

TEST_F(PlacementHistoryTest, ATrialDoesNotComputeWhatOthersHold) {
  workers_[0].prefill_tokens_per_second = 50;
  workers_[0].prompt_steps = 1;
  EXPECT_EQ(PlaceOn(workers_, Held{{0, 480, 0, 0}}.Request()).source, 1u);
  EXPECT_EQ(PlaceOn(workers_, Held{{480, 480, 0, 0}}.Request()).source, 0u);
}

TEST_F(PlacementHistoryTest, WorkersThatServeAloneAreTriedAgainToo) {
  workers_[0].ready = workers_[1].ready = false;
  workers_[2].prefill_tokens_per_second = 50;
  workers_[3].prefill_tokens_per_second = 1000;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3}));
  workers_[2].prompt_steps = 1;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({2}));
}

}  // namespace
}  // namespace baton::router
