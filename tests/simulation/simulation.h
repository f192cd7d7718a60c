// Runs one scenario to its end and checks it after every event.
#ifndef BATON_TESTS_SIMULATION_SIMULATION_H_
#define BATON_TESTS_SIMULATION_SIMULATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/cells.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/sim_executor.h"
#include "kvtransfer/in_process_transport.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_network.h"
#include "tests/simulation/sim_router.h"
#include "tests/simulation/sim_worker.h"

namespace baton::sim {

class SimClient;

struct SimulationResult {
  std::string problem;  // empty: everything was as it must be
  Digest trace;
  uint64_t events = 0;
  std::map<std::string, int> ends;  // how requests ended, by status code
  uint64_t tokens = 0;              // delivered to clients
  uint64_t cached_tokens = 0;       // of their prompts, not computed
  uint64_t revocations = 0;         // of reservations, at random (Scenario::revoke_every)
  uint64_t revoked_for_room = 0;    // the others
  uint64_t preemptions = 0;         // of sequences
};

class Simulation {
 public:
  // `cells` collects over many runs and must outlive this object. `verbose`: the trace goes to
  // stderr.
  Simulation(const Scenario& scenario, CellCounts& cells, bool verbose);
  ~Simulation();

  SimulationResult Run();

 private:
  friend class SimClient;

  void StartWorker(size_t index);
  void StartRouters();
  void PlanRequests();
  void PlanFaults();
  void Hurt(const PlannedFault& fault);
  void StandStill(const PlannedStandstill& standstill);
  // Whose connections alone break; null: everybody's.
  const SimExecutor* PeerOf(const PlannedFault& fault);
  SimWorker* Find(const std::string& address);
  void AfterEvent();
  // So long after a request's end nobody may have anything of it.
  Duration Forgotten() const;
  void CheckForgotten(size_t request);
  void CheckIdle();
  void Damage(std::string& bytes);
  void RevokeAt(Time when, const SimExecutor& node);
  // The first problem stands.
  void Report(const std::string& problem);
  void CountLosses(const SimWorker& worker);
  void Carry(const kvtransfer::InProcessNetwork::Wire& wire, Executor& to, std::string& bytes,
             std::function<void()> deliver);

  const Scenario scenario_;
  CellCounts& cells_;
  const Logger log_;
  SimulationResult result_;
  SimWorld world_;
  SimNetwork network_;
  kvtransfer::InProcessNetwork data_;
  std::map<std::string, Time> wires_;  // last arrival on each data wire
  std::map<std::string, std::unique_ptr<SimWorker>> workers_;
  // Dead workers' executors are still named by what is on the way.
  std::vector<std::unique_ptr<SimWorker>> dead_;
  std::vector<std::unique_ptr<SimRouter>> routers_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  size_t open_ = 0;  // clients without an end
  Time revoke_until_{};
};

// The command that runs this seed again.
std::string ReplayCommand(const Scenario& scenario);

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_SIMULATION_H_
