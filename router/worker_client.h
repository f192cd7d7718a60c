// What the router's core needs from a worker: one session stream and one unary call. A gRPC channel
// in production (grpc_worker_client.h), the simulated network in the simulator.
#ifndef BATON_ROUTER_WORKER_CLIENT_H_
#define BATON_ROUTER_WORKER_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/stream.h"
#include "common/time.h"

namespace baton::router {

using WorkerSession = Stream<worker::v1::SessionRequest, worker::v1::SessionResponse>;

// One worker address. Owner thread: the core's executor, where listener and callbacks are called
// too, never inside a call to this object.
class WorkerClient {
 public:
  virtual ~WorkerClient() = default;

  // Opens a stream; a failed connection is OnClosed. `listener` must outlive the session.
  virtual std::unique_ptr<WorkerSession> OpenSession(WorkerSession::Listener& listener) = 0;

  // After OpenSession. `done` is called exactly once, unless this object is destroyed first: OK
  // when the worker took the attempt, the worker's error, or DEADLINE_EXCEEDED / UNAVAILABLE
  // without an answer (the worker may have taken it or not).
  virtual void Submit(worker::v1::SubmitRequest request, Duration timeout,
                      std::function<void(absl::Status)> done) = 0;
};

using WorkerClientFactory =
    std::function<std::unique_ptr<WorkerClient>(const std::string& address)>;

}  // namespace baton::router

#endif  // BATON_ROUTER_WORKER_CLIENT_H_
