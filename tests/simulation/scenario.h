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
  std::string tenant;
  bool bypass_cache = false;
  // Of the prompt, in tokens: the longest beginning that another request of its tenant has, its
  // answer included. No cache can hold more of it for this request's first attempt.
  size_t most_cached = 0;
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

// Stands still for so long, as when it is stopped or its machine is paused: a router, a worker or,
// neither named, the whole cluster.
struct PlannedStandstill {
  Duration when{0};
  Duration length{0};
  std::optional<size_t> router;
  std::optional<size_t> worker;
};

struct Scenario {
  uint64_t seed = 0;
  size_t routers = 1;
  std::vector<SimWorkerOptions> workers;
  std::vector<PlannedRequest> requests;
  std::vector<PlannedFault> faults;
  std::vector<PlannedStandstill> standstills;
  SimNetwork::Options network;
  // One data frame in so many is damaged, or ends its connection; 0: none.
  uint64_t damage_every = 0;
  // One data frame in so many has the decode worker it goes to revoke its youngest grant, about
  // when it arrives, in the first seconds; 0: none.
  uint64_t revoke_every = 0;
  bool tight_pool = false;
  bool shared_prefixes = false;
  bool small_pools = false;
  uint32_t window = 0;  // of the model's second KV group
};

struct ScenarioOptions {
  bool prefill_workers = true;  // false: decode workers serve alone
  bool faults = false;          // broken connections and lost workers
  bool standstills = false;     // of which nobody may be lost
  // Small pools, and prompts most of which are the next turn of an earlier request of the tenant.
  bool shared_prefixes = false;
  bool revocations = false;  // of reservations, at random
  // All requests come at once, and the pools of the decode workers hold 40 % of what these may come
  // to need, or the largest one alone.
  bool small_pools = false;
  bool windows = false;  // a model one of whose KV groups has a sliding window
};

// The same seed gives the same scenario everywhere.
Scenario MakeScenario(uint64_t seed, const ScenarioOptions& options);

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_SCENARIO_H_
