// The router without I/O: workers' sessions, admission, placement and one state machine per
// request.
#ifndef BATON_ROUTER_ROUTER_CORE_H_
#define BATON_ROUTER_ROUTER_CORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/log.h"
#include "router/core_options.h"
#include "router/request.h"
#include "router/worker_client.h"

namespace baton {
class MetricsRegistry;
}  // namespace baton

namespace baton::router {

// Owner thread: the executor's. Everything passed to the constructor must outlive it.
class RouterCore {
 public:
  RouterCore(CoreOptions options, Executor& executor, const WorkerClientFactory& connect,
             MetricsRegistry& metrics, const Logger& log);
  // Ends every session; observers of live requests are dropped without a word.
  ~RouterCore();
  RouterCore(const RouterCore&) = delete;
  RouterCore& operator=(const RouterCore&) = delete;

  // Opens the sessions.
  void Start();

  // Lists one more worker and opens its session; nothing when the address is listed. Not inside a
  // callback of this object.
  void AddWorker(const WorkerAddress& worker);
  // The address is listed no more: requests that run there go on and new ones still come while the
  // session holds (the worker itself says when it drains); once broken it stays closed. As
  // AddWorker.
  void RemoveWorker(const std::string& address);

  // Ends every session and drops what is live; nothing is called back any more.
  void Stop();

  // The request's number. Every end, a refusal included, comes through `observer`.
  uint64_t Generate(RequestSpec spec, std::unique_ptr<RequestObserver> observer);

  // Ends the request with `why` unless it has ended already.
  void Cancel(uint64_t request, absl::Status why);

  // RESOURCE_EXHAUSTED with RetryInfo when a request of at least so many prompt tokens would find
  // no room now. Saves tokenizing what will be refused; Generate decides.
  absl::Status CheckRoom(uint64_t prompt_tokens);

  // For NameBlocks, which is not done on this thread.
  std::vector<BlockNaming> BlockNamings() const;

  // Largest context of the workers that serve now; 0: none.
  uint32_t ContextLength() const;
  // Whether a request would be placed now.
  bool CanServe() const;
  // Workers that are listed, still connected, or gone with their place not taken again.
  size_t worker_places() const;
  // Requests that have not ended, and those of them that no worker has yet.
  size_t live_requests() const;
  size_t waiting_requests() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_ROUTER_CORE_H_
