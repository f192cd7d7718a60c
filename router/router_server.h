// The router process without its flags: core, frontend, gRPC servers, /metrics.
#ifndef BATON_ROUTER_ROUTER_SERVER_H_
#define BATON_ROUTER_ROUTER_SERVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/executor.h"
#include "common/log.h"
#include "common/time.h"
#include "router/core_options.h"
#include "router/generate_service.h"
#include "router/resolver.h"

namespace baton::router {

struct RouterServerOptions {
  std::string model_path;
  std::string listen = "127.0.0.1:0";
  // channelz; empty: none.
  std::string admin_listen;
  int metrics_port = 0;  // on the host of `listen`; 0: a free one
  size_t text_threads = 1;
  // epoch and vocab_hash are filled in here. A worker whose host is a name is every address behind
  // it, now and later (worker_discovery.h).
  CoreOptions core;
  // Names are resolved again so often.
  Duration resolve_interval = std::chrono::seconds(5);
  // For tests; absent: the system's.
  std::function<std::unique_ptr<Resolver>(Executor&)> make_resolver;
  GenerateServiceOptions service;
  // A client whose connection answers nothing for so long is gone.
  Duration client_keepalive = std::chrono::seconds(20);
  // Called once on the core's thread when every name has resolved and every worker has said hello.
  std::function<void()> on_all_workers_ready;
};

class RouterServer {
 public:
  // Listens when this returns. `log` must outlive the server.
  static absl::StatusOr<std::unique_ptr<RouterServer>> Start(RouterServerOptions options,
                                                             const Logger& log);
  // Ends live requests with UNAVAILABLE, then everything.
  ~RouterServer();
  RouterServer(const RouterServer&) = delete;
  RouterServer& operator=(const RouterServer&) = delete;

  const std::string& listen_address() const;
  const std::string& metrics_address() const;
  const std::string& admin_address() const;

 private:
  class Impl;
  explicit RouterServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_ROUTER_SERVER_H_
