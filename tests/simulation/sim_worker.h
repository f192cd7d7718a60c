// One worker of a simulated cluster: the cores of the binaries over the fake model and the
// simulated network.
#ifndef BATON_TESTS_SIMULATION_SIM_WORKER_H_
#define BATON_TESTS_SIMULATION_SIM_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/random.h"
#include "common/sim_executor.h"
#include "decode_worker/decode_role.h"
#include "engine/fake_model_runner.h"
#include "kv/arena.h"
#include "kvtransfer/in_process_transport.h"
#include "kvtransfer/receive_table.h"
#include "prefill_worker/prefill_role.h"
#include "tests/simulation/sim_network.h"
#include "worker/worker_core.h"

namespace baton::sim {

class SimWorker;

// Byte tokens and a few that end a choice.
const Vocab& SimVocab();

// Who lives at an address; null: nobody.
using Directory = std::function<SimWorker*(const std::string& address)>;

struct SimWorkerOptions {
  std::string name;  // also its address
  bool prefill = false;
  uint32_t blocks = 64;  // of each KV group
  uint32_t window = 0;   // of the second group; with one there is no prefix cache
  uint32_t block_size = 16;
  uint32_t step_tokens = 64;
  uint32_t max_running = 64;
  uint32_t context_length = 256;
  Duration step_cost = std::chrono::microseconds(500);
  Duration reserve_patience = std::chrono::seconds(5);
  bool shares_cores = false;  // with all others that do
  Duration clock_offset{0};
  uint64_t seed = 0;
};

// One life of one worker.
class SimWorker {
 public:
  struct Environment {
    SimWorld& world;
    SimNetwork& network;
    kvtransfer::InProcessNetwork& data;
    const Logger& log;
    Directory directory;
    std::function<void(worker::WorkerOptions&)> adjust;  // optional: hooks of tests
    std::function<void(const engine::Step&)> on_step;    // optional: told when a step starts
  };
  SimWorker(const SimWorkerOptions& options, const Environment& environment);
  ~SimWorker();

  // What arrives from other nodes; called on this node's executor.
  void AcceptRouter(std::shared_ptr<Pipe> pipe);
  void AcceptSource(std::shared_ptr<Pipe> pipe);
  absl::Status Submit(const std::string& request);

  SimExecutor& executor() { return executor_; }
  const SimWorkerOptions& options() const { return options_; }
  Epoch epoch() const { return worker_options_.epoch; }
  const kv::BlockPool& pool() const { return core_->pool(); }
  const kv::PrefixCache* cache() const { return core_->cache(); }  // null: off
  worker::WorkerCore& core() { return *core_; }
  worker::PrefillRole* prefill() { return prefill_.get(); }
  worker::DecodeRole* decode() { return decode_.get(); }

  // Of this life: sequences that gave their blocks up, and reservations (of a sink).
  uint64_t preemptions() const { return Count("baton_preemptions_total"); }
  uint64_t revocations() const {
    return options_.prefill ? 0 : Count("baton_reservations_revoked_total");
  }

  // Of a sink: bytes of KV that have landed in its blocks.
  uint64_t landed_bytes() const { return table_->landed_bytes(); }

  // Whether anything of this attempt is here.
  bool Has(const AttemptId& attempt) const;
  // The process is killed: nothing of it runs any more. Only executor() stays.
  void Die();

  // OK when nothing is held: no attempt, no block, no transfer.
  absl::Status CheckIdle() const;

 private:
  class Dialer;
  worker::WorkerOptions MakeOptions(const Environment& environment);
  uint64_t Count(const char* metric) const;

  const SimWorkerOptions options_;
  SimExecutor executor_;
  SeededRandom random_;
  MetricsRegistry metrics_;
  std::unique_ptr<kv::KvArena> arena_;
  engine::FakeModelRunner runner_;
  std::unique_ptr<Dialer> dialer_;
  kvtransfer::InProcessTransport transport_;
  const worker::WorkerOptions worker_options_;
  std::unique_ptr<worker::WorkerCore> core_;
  std::unique_ptr<worker::PrefillRole> prefill_;
  std::unique_ptr<kvtransfer::ReceiveTable> table_;
  std::unique_ptr<kvtransfer::DataListener> listener_;
  std::unique_ptr<worker::DecodeRole> decode_;
};

}  // namespace baton::sim

#endif  // BATON_TESTS_SIMULATION_SIM_WORKER_H_
