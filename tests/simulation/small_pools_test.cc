// Seeded runs of long answers in decode pools of 40 % of what the requests may come to need: they
// grow, give way to older ones, compute again what the cache lost, and are right.
#include <cstdint>

#include "common/cells.h"
#include "gtest/gtest.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulation.h"

namespace baton::sim {
namespace {

void RunSeeds(uint64_t seeds, ScenarioOptions options) {
  options.small_pools = true;
  CellCounts cells;
  uint64_t preemptions = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Scenario scenario = MakeScenario(seed, options);
    const SimulationResult result = Simulation(scenario, cells, false).Run();
    EXPECT_EQ(result.problem, "") << "seed " << seed << ", again by: " << ReplayCommand(scenario);
    preemptions += result.preemptions;
  }
  EXPECT_GT(preemptions, seeds);
}

TEST(SmallPoolsTest, SplitRequestsAllEndRight) { RunSeeds(10, {}); }

TEST(SmallPoolsTest, RequestsOfOneWorkerAllEndRight) { RunSeeds(10, {.prefill_workers = false}); }

TEST(SmallPoolsTest, SoDoThoseThatLoseWorkers) { RunSeeds(6, {.faults = true}); }

TEST(SmallPoolsTest, SoDoConversations) { RunSeeds(6, {.shared_prefixes = true}); }

}  // namespace
}  // namespace baton::sim
