// What happens in one seeded run: the cluster's shape, who asks for what and when, who goes away.
#ifndef BATON_TESTS_SIMULATION_SCENARIO_H_
#define BATON_TESTS_SIMULATION_SCENARIO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/decoder_state.h"
#include "common/time.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/sim_worker.h"

namespace baton::sim {

struct PlannedRequest {
  size_t router = 0;
  Duration arrival{0};
  DecoderState state;  // prompt, sampling and stop parameters
  std::optional<Duration> cancel_after;
  std::optional<Duration> deadline_after;
};

// Breaks every connection of a worker at a time, or those with one router or one other worker
// alone, and ends its life when `restart` is set: another one takes its address after that long.
struct PlannedFault {
  size_t worker = 0;
  Duration when{0};
  std::optional<Duration> restart;
  std::optional<size_t> router;
  std::optional<size_t> other_worker;
};

struct Scenario {
  uint64_t seed = 0;
  size_t routers = 1;
  std::vector<SimWorkerOptions> workers;
  std::vector<PlannedRequest> requests;
  std::vector<PlannedFault> faults;
  SimNetwork::Options network;
  // One data frame in so many is damaged, or ends its connection; 0: none.
  uint64_t damage_every = 0;
  bool tight_pool = false;
};

struct ScenarioOptions {
  bool prefill_workers = true;  // false: decode workers serve alone
  bool faults = false;          // broken connections and lost workers
};

// The same seed gives the same scenario everywhere.
Scenario MakeScenario(uint64_t seed, const ScenarioOptions& options);

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_SCENARIO_H_
