// The admitted requests that no worker has, in the order they go to workers.
//
// Who is next: of the tenants that wait the one that was served least (tenant_counters.h); within
// it the smallest rank, which is the time of arrival minus a credit per step of priority. So a
// higher priority overtakes, but only what came within its credit before it: nothing is overtaken
// for ever. A priority takes nothing from other tenants.
//
// Room: requests and prompt tokens. Only new requests are refused; what was admitted comes back
// (placed again) however full the queue is.
#ifndef BATON_ROUTER_ADMISSION_QUEUE_H_
#define BATON_ROUTER_ADMISSION_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/time.h"
#include "router/tenant_counters.h"

namespace baton::router {

struct QueuedRequest {
  uint64_t number = 0;
  std::string tenant;
  Time rank;
  uint64_t prompt_tokens = 0;
};

// Owner thread: the core's.
class AdmissionQueue {
 public:
  // `counters` must outlive it and hold the tenant of every request here.
  explicit AdmissionQueue(TenantCounters& counters) : counters_(counters) {}

  // Takes a place; paused until Resume, or waiting at once.
  void Pause(QueuedRequest request) { Take(std::move(request)); }
  void Resume(uint64_t number);
  void Add(QueuedRequest request);
  // Nothing when it is not here.
  void Remove(uint64_t number);
  void Clear();

  // Paused ones included.
  size_t requests() const { return requests_.size(); }
  uint64_t prompt_tokens() const { return prompt_tokens_; }

  // Paused ones are never next.
  bool anyone_waits() const { return counters_.anyone_waits(); }
  uint64_t Next() const;

  // Prompt tokens that go to workers before `request` would, as things are.
  uint64_t TokensBefore(const QueuedRequest& request) const;

 private:
  struct Line {  // of one tenant
    std::set<std::pair<Time, uint64_t>> order;
    uint64_t prompt_tokens = 0;
  };

  void Take(QueuedRequest request);

  TenantCounters& counters_;
  std::map<uint64_t, QueuedRequest> requests_;
  std::map<std::string, Line> lines_;  // none is empty
  uint64_t prompt_tokens_ = 0;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_ADMISSION_QUEUE_H_
