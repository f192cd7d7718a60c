// The public gRPC service: callback reactors that hand calls to the core's thread.
#ifndef BATON_ROUTER_GENERATE_SERVICE_H_
#define BATON_ROUTER_GENERATE_SERVICE_H_

#include <cstddef>
#include <memory>

#include "common/executor.h"
#include "common/time.h"
#include "router/frontend.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace baton::router {

struct GenerateServiceOptions {
  // Held for one client that reads slower than tokens come; beyond it the client is too slow.
  size_t client_buffer_bytes = 256 << 10;
  // A client that takes nothing for so long is too slow.
  Duration slow_client_timeout = std::chrono::seconds(30);
  // Of a whole answer in one message; larger ones end the request.
  size_t max_answer_bytes = 16 << 20;
};

// `executor` owns `frontend`; both must outlive the server.
std::unique_ptr<grpc::Service> MakeGenerateService(const GenerateServiceOptions& options,
                                                   Executor& executor, Frontend& frontend);

}  // namespace baton::router

#endif  // BATON_ROUTER_GENERATE_SERVICE_H_
