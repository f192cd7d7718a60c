// Seeded runs of a model one of whose KV groups has a sliding window: blocks slide out at sources,
// at sinks and where requests run alone, and every token is right.
#include <cstdint>

#include "common/cells.h"
#include "gtest/gtest.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulation.h"

namespace baton::sim {
namespace {

uint64_t RunSeeds(uint64_t seeds, ScenarioOptions options) {
  options.windows = true;
  CellCounts cells;
  uint64_t preemptions = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Scenario scenario = MakeScenario(seed, options);
    const SimulationResult result = Simulation(scenario, cells, false).Run();
    EXPECT_EQ(result.problem, "") << "seed " << seed << ", again by: " << ReplayCommand(scenario);
    EXPECT_EQ(result.cached_tokens, 0u) << "there is no prefix cache";
    preemptions += result.preemptions;
  }
  return preemptions;
}

TEST(WindowsTest, SplitRequestsAllEndRight) { RunSeeds(20, {}); }

TEST(WindowsTest, RequestsOfOneWorkerAllEndRight) { RunSeeds(10, {.prefill_workers = false}); }

TEST(WindowsTest, SoDoThoseThatLoseWorkers) { RunSeeds(15, {.faults = true}); }

TEST(WindowsTest, SoDoThoseWhoseReservationsAreRevoked) { RunSeeds(10, {.revocations = true}); }

TEST(WindowsTest, SoDoThoseThatGiveWay) {
  EXPECT_GT(RunSeeds(10, {.small_pools = true}), 10u);
  EXPECT_GT(RunSeeds(10, {.prefill_workers = false, .small_pools = true}), 10u);
}

}  // namespace
}  // namespace baton::sim
