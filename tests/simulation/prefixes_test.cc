// Seeded runs whose prompts share beginnings, in pools so small that cached blocks come and go.
#include <cstdint>
#include <iostream>

#include "common/cells.h"
#include "gtest/gtest.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulation.h"

namespace baton::sim {
namespace {

constexpr uint64_t kFirstSeed = 501;

struct Seen {
  uint64_t cached = 0, preempted = 0, revoked = 0;  // tokens; seeds in which any was
};

Seen RunSeeds(uint64_t seeds, ScenarioOptions options) {
  options.shared_prefixes = true;
  CellCounts cells;
  Seen seen;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + seeds; ++seed) {
    const Scenario scenario = MakeScenario(seed, options);
    const SimulationResult result = Simulation(scenario, cells, false).Run();
    EXPECT_EQ(result.problem, "") << "seed " << seed << ", again by: " << ReplayCommand(scenario);
    seen.cached += result.cached_tokens;
    seen.preempted += result.preemptions > 0 ? 1 : 0;
    seen.revoked += result.revoked_for_room > 0 ? 1 : 0;
  }
  EXPECT_GT(seen.cached, seeds * 100);
  std::cout << "of " << seeds << " seeds " << seen.preempted << " with preemptions, "
            << seen.revoked << " with reservations revoked for room" << std::endl;
  return seen;
}

TEST(PrefixesTest, SplitRequestsAreRightAndFindOnlyWhatTheirTenantLeft) {
  const Seen seen = RunSeeds(60, {});
  EXPECT_GT(seen.preempted, 30u);
  EXPECT_GT(seen.revoked, 5u);
}

TEST(PrefixesTest, RequestsOfOneWorkerAreRightToo) {
  EXPECT_GT(RunSeeds(30, {.prefill_workers = false}).preempted, 15u);
}

TEST(PrefixesTest, LostWorkersTakeTheirCachesWithThem) {
  EXPECT_GT(RunSeeds(30, {.faults = true}).preempted, 10u);
}

}  // namespace
}  // namespace baton::sim
