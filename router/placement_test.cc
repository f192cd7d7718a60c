#include "router/placement.h"

#include <string>
#include <utility>
#include <vector>

#include "common/time.h"
#include "gtest/gtest.h"
#include "router/placement_fixture.h"

namespace baton::router {
namespace {

TEST_F(PlacementTest, TakesTheSourceWithTheLeastPredictedWork) {
  workers_[0].queued_prefill_tokens = 1000;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
  // Twice as fast makes up for a longer queue.
  workers_[1].queued_prefill_tokens = 600;
  workers_[0].prefill_tokens_per_second = 2000;
  workers_[1].prefill_tokens_per_second = 1000;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 0u);
}

TEST_F(PlacementTest, CutOffSourcesAreNotTakenAndWithoutAnotherADecodeWorkerServesAlone) {
  PlacementRequest request = Request();
  request.cut_off = {0};
  EXPECT_EQ(PlaceOn(workers_, request).source, 1u);
  request.cut_off = {0, 1};
  const Placement alone = PlaceOn(workers_, request);
  EXPECT_EQ(alone.verdict, PlacementVerdict::kPlaced);
  EXPECT_EQ(alone.source, std::nullopt);
  EXPECT_EQ(alone.sinks, std::vector<size_t>({2}));
}

TEST_F(PlacementTest, ShunnedWorkersAreTakenOnlyToDecodeWhenNobodyElseIsLeft) {
  workers_[0].shunned = true;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
  workers_[2].shunned = true;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3, 2}));
  workers_[1].shunned = true;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, std::nullopt);
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3}));
  workers_[3].shunned = true;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({2}));
}

// It has no figures of its own yet, and on fast machines the assumed ones are far off.
TEST_F(PlacementTest, AWorkerThatHasJustStartedCountsAsOneOfTheOthers) {
  workers_[2].step_times.step = 0.0005;
  workers_[2].streams = 1;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3, 2}));
  workers_[0].prefill_tokens_per_second = 50000;
  workers_[0].queued_prefill_tokens = 100;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
  workers_[2].streams = 0;
  workers_[3].streams = 1;
  workers_[0].queued_prefill_tokens = 0;
  workers_[1].queued_prefill_tokens = 100;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({2, 3}));
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 0u);
}

TEST_F(PlacementTest, CountsTheTransferOfTheSource) {
  PlacementOptions options;
  options.kv_bytes_per_token = 1e6;
  workers_[0].transfer_bytes_per_second = 1e7;
  workers_[1].transfer_bytes_per_second = 1e9;
  EXPECT_EQ(PlaceOn(workers_, Request(), options).source, 1u);
}

TEST_F(PlacementTest, TiesGoToFewerOfOurRequestsThenToTheLowerIndex) {
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 0u);
  workers_[0].prompts_in_flight = 1;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
}

TEST_F(PlacementTest, OrdersSinksByStepTimeAndRoom) {
  workers_[2].step_times.step = 0.05;
  workers_[3].step_times.step = 0.01;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3, 2}));
  workers_[3].free_blocks = {2};
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({2, 3}));
  workers_[3].free_blocks = {5};  // what it begins with, not all that it may come to need
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3, 2}));
  workers_[3].free_blocks = {2};
  PlacementOptions one;
  one.max_sinks = 1;
  EXPECT_EQ(PlaceOn(workers_, Request(), one).sinks, std::vector<size_t>({2}));
}

TEST_F(PlacementTest, NamesOnlySinksWithTheSourcesFingerprints) {
  workers_[2].layout_fp = Digest{9, 9};
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3}));
  workers_[3].numerics_id = Digest{9, 9};
  // Nobody can take its blocks: the decode workers serve alone.
  const Placement placement = PlaceOn(workers_, Request());
  EXPECT_EQ(placement.verdict, PlacementVerdict::kPlaced);
  EXPECT_FALSE(placement.source.has_value());
  EXPECT_EQ(placement.sinks.size(), 1u);
}

TEST_F(PlacementTest, SkipsWorkersItDoesNotFit) {
  workers_[0].pool_blocks = {3};  // the prompt alone needs 4
  workers_[2].pool_blocks = {5};  // prompt and answer need 6
  const Placement placement = PlaceOn(workers_, Request());
  EXPECT_EQ(placement.source, 1u);
  EXPECT_EQ(placement.sinks, std::vector<size_t>({3}));
}

TEST_F(PlacementTest, AllChoicesMustFitTheSinkAndThePromptAloneTheSource) {
  PlacementRequest request = Request(60, 33);
  request.n = 4;
  workers_[0].pool_blocks = {3};  // the prompt needs 4
  workers_[1].pool_blocks = {4};
  workers_[2].pool_blocks = {14};  // 3 shared ones, and 3 of each choice
  workers_[3].pool_blocks = {15};
  const Placement placement = PlaceOn(workers_, request);
  EXPECT_EQ(placement.source, 1u);
  EXPECT_EQ(placement.sinks, std::vector<size_t>({3}));
  workers_[3].pool_blocks = {14};
  const Placement never = PlaceOn(workers_, request);
  EXPECT_EQ(never.verdict, PlacementVerdict::kNeverFits);
  EXPECT_EQ(never.needed_blocks, 15u);
  EXPECT_EQ(never.largest_pool, 14u);
}

TEST_F(PlacementTest, ASinkOfFewRequestsWithManyChoicesIsTheBusierOne) {
  workers_[2].streams = 1;
  workers_[2].choices = 8;
  workers_[3].streams = 3;
  workers_[3].choices = 3;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3, 2}));
}

// Each choice is a row of every step: the faster worker wins back what its company costs.
TEST_F(PlacementTest, ManyChoicesWeighTheStepsOfTheSink) {
  workers_[2].step_times = {.step = 0.004, .decode_row = 0.002};
  workers_[2].choices = 4;
  workers_[3].step_times = {.step = 0.008, .decode_row = 0.004};
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3, 2}));
  PlacementRequest wide = Request();
  wide.n = 8;
  EXPECT_EQ(PlaceOn(workers_, wide).sinks, std::vector<size_t>({2, 3}));
}

TEST_F(PlacementTest, LongContextsWeighTheStepsOfTheSink) {
  for (WorkerView& worker : workers_) {
    worker.step_times = {.step = 0.005, .decode_row = 0.001, .decode_key = 1e-6};
  }
  workers_[2].running = workers_[3].running = 4;
  workers_[2].decode_keys = 4 * 2000;
  workers_[3].decode_keys = 4 * 200;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3, 2}));
}

TEST_F(PlacementTest, ALongPromptGoesWhereItsAttentionIsCheaper) {
  workers_[0].prefill_tokens_per_second = 1100;
  workers_[0].step_times.prompt_key = 1e-5;
  workers_[1].prefill_tokens_per_second = 1000;
  workers_[1].step_times.prompt_key = 1e-7;
  EXPECT_EQ(PlaceOn(workers_, Request(10)).source, 0u);
  EXPECT_EQ(PlaceOn(workers_, Request(900)).source, 1u);
}

// What was measured differs by chance that much.
TEST_F(PlacementTest, SinksThatAreAboutEquallyFastGetEquallyMany) {
  workers_[2].step_times.step = 0.0100;
  workers_[3].step_times.step = 0.0115;
  workers_[2].streams = 1;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3, 2}));
  workers_[3].step_times.step = 0.02;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({2, 3}));
}

TEST_F(PlacementTest, AFasterSinkGetsMoreAndNeverAll) {
  const auto spread = [&](double slower) {
    workers_[2].step_times = {.step = 0.005, .decode_row = 0.001};
    workers_[3].step_times = {.step = 0.005 * slower, .decode_row = 0.001 * slower};
    for (const size_t i : {2, 3}) workers_[i].streams = workers_[i].choices = 0;
    for (int request = 0; request < 32; ++request) {
      WorkerView& sink = workers_[PlaceOn(workers_, Request()).sinks.front()];
      ++sink.streams;
      ++sink.choices;
    }
    return std::pair(workers_[2].streams, workers_[3].streams);
  };
  EXPECT_EQ(spread(1), std::pair(16u, 16u));
  EXPECT_GE(spread(1.3).second, 10u);
  EXPECT_GE(spread(2).second, 6u);
  EXPECT_GT(spread(2).first, spread(2).second);
}

// Both alone and as sinks.
TEST_F(PlacementTest, FiguresThatGrowBeyondAllBoundsStillGiveAnOrder) {
  for (WorkerView& worker : workers_) {
    worker.step_times = {3600, 3600, 3600, 3600, 3600};
    worker.decode_keys = UINT64_MAX;
    worker.running = UINT32_MAX;
    worker.queued_prefill_tokens = UINT64_MAX;
    worker.prefill_tokens_per_second = 1e-300;
  }
  EXPECT_EQ(PlaceOn(workers_, Request()).verdict, PlacementVerdict::kPlaced);
  workers_[0].ready = workers_[1].ready = false;
  EXPECT_EQ(PlaceOn(workers_, Request()).verdict, PlacementVerdict::kPlaced);
}

TEST_F(PlacementTest, EveryKvGroupMustFit) {
  workers_[2].pool_blocks = {100, 5};
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3}));
}

TEST_F(PlacementTest, APromptThatFitsNoSourceRunsOnTheDecodeWorker) {
  workers_[0].pool_blocks = workers_[1].pool_blocks = {3};
  const Placement placement = PlaceOn(workers_, Request());
  EXPECT_EQ(placement.verdict, PlacementVerdict::kPlaced);
  EXPECT_FALSE(placement.source.has_value());
}

TEST_F(PlacementTest, NeverFitsNamesWhatIsNeededAndWhatThereIs) {
  const Placement placement = PlaceOn(workers_, Request(64, 900));
  EXPECT_EQ(placement.verdict, PlacementVerdict::kPlaced);
  workers_[2].pool_blocks = {50};
  workers_[3].pool_blocks = {40};
  const Placement never = PlaceOn(workers_, Request(64, 900));
  EXPECT_EQ(never.verdict, PlacementVerdict::kNeverFits);
  EXPECT_EQ(never.needed_blocks, 61u);
  EXPECT_EQ(never.largest_pool, 50u);
}

TEST_F(PlacementTest, LostAndDrainingWorkersGetNothing) {
  workers_[0].ready = false;
  workers_[1].draining = true;
  EXPECT_FALSE(PlaceOn(workers_, Request()).source.has_value());
  workers_[2].draining = true;
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({3}));
  workers_[3].ready = false;
  EXPECT_EQ(PlaceOn(workers_, Request()).verdict, PlacementVerdict::kNoWorker);
}

TEST_F(PlacementTest, WaitsWhileEveryWindowIsFull) {
  PlacementOptions options;
  options.prompt_window = 2;
  workers_[0].prompts_in_flight = 2;
  EXPECT_EQ(PlaceOn(workers_, Request(), options).source, 1u);
  workers_[1].prompts_in_flight = 2;
  EXPECT_EQ(PlaceOn(workers_, Request(), options).verdict, PlacementVerdict::kWait);
}

TEST_F(PlacementTest, AWorkerThatRefusedIsTakenOnlyWhenNobodyElseIsLeft) {
  PlacementRequest request = Request();
  request.avoid = {0, 2};
  Placement placement = PlaceOn(workers_, request);
  EXPECT_EQ(placement.source, 1u);
  EXPECT_EQ(placement.sinks, std::vector<size_t>({3, 2}));
  workers_[1].ready = false;
  EXPECT_EQ(PlaceOn(workers_, request).source, 0u);
}

TEST_F(PlacementTest, ASizeBeyondCountingFitsNobody) {
  EXPECT_EQ(PlaceOn(workers_, Request(UINT64_MAX / 2, UINT32_MAX)).verdict,
            PlacementVerdict::kNeverFits);
}

TEST_F(PlacementTest, OfEqualSourcesTheOneThatGotNoPromptForLongestIsTaken) {
  workers_[0].last_prompt = Time(Duration(5));
  workers_[1].last_prompt = Time(Duration(4));
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
  // Measured by chance a little slower.
  workers_[0].prefill_tokens_per_second = 1030;
  workers_[1].prefill_tokens_per_second = 1000;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 1u);
  workers_[0].prefill_tokens_per_second = 1100;
  EXPECT_EQ(PlaceOn(workers_, Request()).source, 0u);
}

TEST_F(PlacementTest, SourcesOfSeveralKindsHaveTheirOwnSinks) {
  workers_[1].numerics_id = workers_[3].numerics_id = Digest{9, 9};
  EXPECT_EQ(PlaceOn(workers_, Request()).sinks, std::vector<size_t>({2}));
  workers_[0].queued_prefill_tokens = 100;
  const Placement placement = PlaceOn(workers_, Request());
  EXPECT_EQ(placement.source, 1u);
  EXPECT_EQ(placement.sinks, std::vector<size_t>({3}));
}

}  // namespace
}  // namespace baton::router
