// Many seeded runs of a whole cluster in one thread, checked after every event (simulation.cc).
#include "tests/simulation/simulation.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "common/cells.h"
#include "gtest/gtest.h"
#include "tests/simulation/cells.h"
#include "tests/simulation/scenario.h"

namespace baton::sim {
namespace {

struct Totals {
  CellCounts cells;
  std::map<std::string, int> ends;
  uint64_t events = 0;
  uint64_t tokens = 0;
  uint64_t revocations = 0;
};

void RunSeeds(uint64_t seeds, const ScenarioOptions& options, Totals& totals) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Scenario scenario = MakeScenario(seed, options);
    const SimulationResult result = Simulation(scenario, totals.cells, false).Run();
    EXPECT_EQ(result.problem, "") << "seed " << seed << ", again by: " << ReplayCommand(scenario);
    for (const auto& [code, count] : result.ends) totals.ends[code] += count;
    totals.events += result.events;
    totals.tokens += result.tokens;
    totals.revocations += result.revocations;
  }
}

TEST(SimulationTest, EverySeedEndsRightAndEveryCellIsSeen) {
  Totals totals;
  RunSeeds(100, {}, totals);
  EXPECT_GT(totals.ends["OK"], 1000);
  EXPECT_GT(totals.ends["CANCELLED"], 100);
  EXPECT_GT(totals.ends["DEADLINE_EXCEEDED"], 100);
  RunSeeds(20, {.prefill_workers = false}, totals);
  RunSeeds(60, {.faults = true}, totals);
  EXPECT_GT(totals.ends["UNAVAILABLE"], 10);
  RunSeeds(40, {.standstills = true}, totals);
  EXPECT_EQ(totals.revocations, 0u);
  // By older sequences in small pools.
  EXPECT_GT(totals.cells.Of("decode", "Granted", "Revoke"), 10u);
  RunSeeds(40, {.revocations = true}, totals);
  EXPECT_GT(totals.revocations, 500u);
  RunSeeds(10, {.faults = true, .revocations = true}, totals);
  std::printf("%s", totals.cells.ToString(CellTables()).c_str());
  std::printf("%llu events, %llu tokens, ends:", static_cast<unsigned long long>(totals.events),
              static_cast<unsigned long long>(totals.tokens));
  for (const auto& [code, count] : totals.ends) std::printf(" %s %d", code.c_str(), count);
  std::printf("\n");
  EXPECT_EQ(totals.cells.Problems(CellTables(), "s"), "");
}

// Runs the simulator in a process of its own and returns what it prints.
std::string Simulate(const std::string& arguments) {
  std::FILE* const pipe = ::popen(("tests/simulation/simulate " + arguments).c_str(), "r");
  if (pipe == nullptr) return "cannot run the simulator";
  std::string out;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  ::pclose(pipe);
  return out;
}

TEST(SimulationTest, ASeedGivesTheSameTraceInEveryProcess) {
  for (const char* arguments : {"--seed=3", "--seed=4", "--seed=5 --faults", "--seed=6 --unified",
                                "--seed=7 --standstills", "--seed=8 --revocations"}) {
    const std::string first = Simulate(arguments);
    EXPECT_NE(first.find("1 seeds, 0 failed"), std::string::npos) << first;
    EXPECT_NE(first.find("trace"), std::string::npos) << first;
    EXPECT_EQ(first, Simulate(arguments));
  }
}

}  // namespace
}  // namespace baton::sim
