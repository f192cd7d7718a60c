// WorkerClient over a gRPC channel.
#ifndef BATON_ROUTER_GRPC_WORKER_CLIENT_H_
#define BATON_ROUTER_GRPC_WORKER_CLIENT_H_

#include <memory>
#include <string>

#include "common/executor.h"
#include "router/worker_client.h"

namespace baton::router {

// Connects in the background. `executor` must run until every gRPC thread is done with the client's
// calls: destroy the client, then let grpc shut down, then stop the executor.
std::unique_ptr<WorkerClient> MakeGrpcWorkerClient(const std::string& address, Executor& executor);

}  // namespace baton::router

#endif  // BATON_ROUTER_GRPC_WORKER_CLIENT_H_
