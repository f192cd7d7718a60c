// A worker without its gRPC server: the loaded model, the KV memory, the engine's thread, the core,
// the role and the data transports.
#ifndef BATON_WORKER_WORKER_NODE_H_
#define BATON_WORKER_WORKER_NODE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/event_loop.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/random.h"
#include "decode_worker/decode_role.h"
#include "kv/arena.h"
#include "kv/arena_pages.h"
#include "kvtransfer/receive_table.h"
#include "kvtransfer/source.h"
#include "kvtransfer/transport.h"
#include "model/load.h"
#include "model/model_runner.h"
#include "prefill_worker/prefill_role.h"
#include "text/vocab.h"
#include "worker/worker_core.h"
#include "worker/worker_options.h"

namespace baton::worker {

struct NodeOptions {
  model::LoadOptions model;
  // Everything but what the model says. pool_blocks: one number, of each group.
  WorkerOptions worker;
  uint32_t kv_blocks = 1024;
  // Data transports: "auto" (shm where the source can reach it, else tcp), "tcp" or "shm".
  std::string transport = "auto";
  // Where the tcp transport listens (an address of this machine; port 0: a free one) and what
  // sources are told (empty host: the same; port 0: the bound one).
  HostPort data_listen = {"127.0.0.1", 0};
  HostPort data_advertise;

  absl::Status Validate() const;
};

// Call order: Load (slow: reads and packs the weights), Start, Stop. Not thread-safe; core(),
// role and sink belong to the loop's thread after Start.
class WorkerNode {
 public:
  // Both must outlive the node.
  struct Environment {
    MetricsRegistry& metrics;
    const Logger& log;
  };
  static absl::StatusOr<std::unique_ptr<WorkerNode>> Load(const NodeOptions& options,
                                                          const Environment& environment);
  ~WorkerNode();
  WorkerNode(const WorkerNode&) = delete;
  WorkerNode& operator=(const WorkerNode&) = delete;

  // Makes core and role and runs the loop. `transfer_address` is told to routers. `dialer` must
  // outlive Stop.
  absl::Status Start(const std::string& transfer_address, kvtransfer::SinkDialer& dialer);
  // Ends every stream and transfer and the engine, on the loop's thread; the loop goes on (gRPC
  // may still post to it) until this object dies.
  void Stop();

  EventLoop& loop() { return loop_; }
  WorkerCore& core() { return *core_; }
  // Null for a prefill worker.
  DecodeRole* decode_role() { return decode_role_.get(); }
  const WorkerOptions& options() const { return options_.worker; }
  // Where tcp data connections arrive, bound; empty when none do. After Start.
  const std::string& data_address() const { return data_address_; }

 private:
  WorkerNode(const NodeOptions& options, const Environment& environment, model::LoadedModel model,
             Vocab vocab);
  absl::Status MakeArena();
  void MakeTransports();
  absl::Status MakeRole(kvtransfer::SinkDialer& dialer);
  void Teardown();

  NodeOptions options_;
  const Environment env_;
  model::LoadedModel model_;
  const Vocab vocab_;
  OsRandom random_;
  std::unique_ptr<kv::KvArena> arena_;
  std::unique_ptr<kv::ArenaPages> pages_;
  EventLoop loop_;
  bool started_ = false;
  std::string data_address_;
  // Loop's thread from here on; in the order in which they need each other.
  std::unique_ptr<model::ModelRunner> runner_;
  std::unique_ptr<WorkerCore> core_;
  std::vector<std::unique_ptr<kvtransfer::Transport>> transports_;
  std::unique_ptr<kvtransfer::ReceiveTable> table_;
  std::unique_ptr<PrefillRole> prefill_role_;
  std::unique_ptr<DecodeRole> decode_role_;
  std::vector<std::unique_ptr<kvtransfer::DataListener>> listeners_;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_WORKER_NODE_H_
