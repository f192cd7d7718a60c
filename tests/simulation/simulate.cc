// Runs seeds of the simulator: --seed=N for one, --first=N --seeds=N for many; --faults,
// --standstills, --unified, --prefixes, --revocations, --small-pools, --windows choose the kind of
// scenario, --until-failure stops at the first,
// --verbose prints everything that arrives, --cells the table of cells. Prints one line per failing
// seed with the command that replays it. Exit status 1 if there is one.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "common/cells.h"
#include "tests/simulation/cells.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulation.h"

namespace {

struct Arguments {
  uint64_t first = 1;
  uint64_t seeds = 100;
  bool verbose = false;
  bool cells = false;
  bool until_failure = false;
  baton::sim::ScenarioOptions scenario;
};

bool Parse(int argc, char** argv, Arguments& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const size_t equals = arg.find('=');
    const std::string_view name = arg.substr(0, equals);
    const uint64_t value =
        equals == arg.npos ? 0 : std::strtoull(argv[i] + equals + 1, nullptr, 10);
    if (name == "--seed") {
      out.first = value;
      out.seeds = 1;
    } else if (name == "--first") {
      out.first = value;
    } else if (name == "--seeds") {
      out.seeds = value;
    } else if (name == "--faults") {
      out.scenario.faults = true;
    } else if (name == "--standstills") {
      out.scenario.standstills = true;
    } else if (name == "--unified") {
      out.scenario.prefill_workers = false;
    } else if (name == "--prefixes") {
      out.scenario.shared_prefixes = true;
    } else if (name == "--revocations") {
      out.scenario.revocations = true;
    } else if (name == "--windows") {
      out.scenario.windows = true;
    } else if (name == "--small-pools") {
      out.scenario.small_pools = true;
    } else if (name == "--verbose") {
      out.verbose = true;
    } else if (name == "--until-failure") {
      out.until_failure = true;
    } else if (name == "--cells") {
      out.cells = true;
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, arguments)) return 2;
  baton::CellCounts cells;
  std::map<std::string, int> ends;
  uint64_t events = 0;
  uint64_t tokens = 0;
  uint64_t preemptions = 0;
  int failed = 0;
  baton::Digest trace;
  for (uint64_t seed = arguments.first; seed < arguments.first + arguments.seeds; ++seed) {
    const auto scenario = baton::sim::MakeScenario(seed, arguments.scenario);
    baton::sim::Simulation simulation(scenario, cells, arguments.verbose);
    const baton::sim::SimulationResult result = simulation.Run();
    events += result.events;
    tokens += result.tokens;
    preemptions += result.preemptions;
    trace = result.trace;
    for (const auto& [code, count] : result.ends) ends[code] += count;
    if (result.problem.empty()) continue;
    ++failed;
    std::printf("seed %llu: %s\n  %s\n", static_cast<unsigned long long>(seed),
                result.problem.c_str(), baton::sim::ReplayCommand(scenario).c_str());
    if (arguments.until_failure) break;
  }
  if (arguments.cells) std::printf("%s", cells.ToString(baton::sim::CellTables()).c_str());
  std::printf("%llu seeds, %d failed, %llu events, %llu tokens, %llu preemptions, ends:",
              static_cast<unsigned long long>(arguments.seeds), failed,
              static_cast<unsigned long long>(events), static_cast<unsigned long long>(tokens),
              static_cast<unsigned long long>(preemptions));
  for (const auto& [code, count] : ends) std::printf(" %s %d", code.c_str(), count);
  std::printf(", last trace %016llx%016llx\n", static_cast<unsigned long long>(trace.hi),
              static_cast<unsigned long long>(trace.lo));
  return failed == 0 ? 0 : 1;
}
