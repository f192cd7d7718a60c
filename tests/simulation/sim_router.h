// A router of a simulated cluster: the core of the binary, its workers reached over the simulated
// network.
#ifndef BATON_TESTS_SIMULATION_SIM_ROUTER_H_
#define BATON_TESTS_SIMULATION_SIM_ROUTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/log.h"
#include "common/metrics.h"
#include "common/random.h"
#include "common/sim_executor.h"
#include "router/router_core.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/sim_worker.h"

namespace baton::sim {

class SimRouter {
 public:
  struct Options {
    std::string name;
    std::vector<std::string> workers;
    Duration clock_offset{0};
    uint64_t seed = 0;
    std::function<void(router::RequestState, router::FlowEvent)> on_transition;
  };
  SimRouter(const Options& options, SimWorld& world, SimNetwork& network, const Logger& log,
            const Directory& directory);

  SimExecutor& executor() { return executor_; }
  router::RouterCore& core() { return *core_; }
  Epoch epoch() const { return epoch_; }
  // How often the request was submitted.
  uint32_t Submits(uint64_t request) const {
    const auto found = submits_.find(request);
    return found == submits_.end() ? 0 : found->second;
  }

 private:
  SimExecutor executor_;
  MetricsRegistry metrics_;
  Epoch epoch_;
  std::map<uint64_t, uint32_t> submits_;
  std::unique_ptr<router::RouterCore> core_;
};

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_SIM_ROUTER_H_
