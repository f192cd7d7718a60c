// A worker as a process offers it: the node behind a gRPC server (WorkerService, TransferService,
// health, reflection, channelz) and /metrics.
#ifndef BATON_WORKER_WORKER_SERVER_H_
#define BATON_WORKER_WORKER_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/log.h"
#include "common/metrics.h"
#include "worker/worker_node.h"

namespace baton::worker {

struct ServerOptions {
  NodeOptions node;
  std::string listen = "127.0.0.1:0";  // HOST:PORT; port 0: a free one
  std::string advertise;               // HOST or HOST:PORT that others reach us by; empty: listen
  int metrics_port = 0;                // on the host of `listen`; 0: a free one

  // INVALID_ARGUMENT naming the option.
  absl::Status Validate() const;
};

// Create serves when it returns. Not thread-safe.
class WorkerServer {
 public:
  // `log` must outlive the server.
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Create(const ServerOptions& options,
                                                              const Logger& log);
  // Stops: new work is refused, every stream ends, blocks are given back.
  virtual ~WorkerServer() = default;

  virtual const std::string& name() const = 0;
  virtual const std::string& listen_address() const = 0;   // bound
  virtual const std::string& metrics_address() const = 0;  // bound
  virtual MetricsRegistry& metrics() = 0;
  virtual WorkerNode& node() = 0;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_WORKER_SERVER_H_
