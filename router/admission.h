// Who comes in, and who goes to a worker next: the queue, its bounds, what it is predicted to take,
// and the fairness between tenants. Pure bookkeeping: placement and the requests' states are
// elsewhere.
#ifndef BATON_ROUTER_ADMISSION_H_
#define BATON_ROUTER_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/executor.h"
#include "router/admission_queue.h"
#include "router/core_metrics.h"
#include "router/core_options.h"
#include "router/drain_estimate.h"
#include "router/request.h"
#include "router/request_flow.h"
#include "router/tenant_counters.h"
#include "router/worker_view.h"

namespace baton::router {

// Owner thread: the core's. Everything passed in must outlive it. Calls that name a flow come in
// the order of its life: Enter once; Admit; then Submitted and Pause, Resume by turns; Leave once,
// at any point.
class Admission {
 public:
  Admission(const CoreOptions& options, const Executor& executor, CoreMetrics& metrics,
            const std::vector<const WorkerView*>& workers);

  // RESOURCE_EXHAUSTED with RetryInfo when the queue is full.
  absl::Status Room(uint64_t prompt_tokens) const;
  // The same when the first token is predicted to miss the deadline or the target. Nothing is
  // predicted while nothing is ahead: then only trying gives new measurements. `cached_tokens`: of
  // the prompt, not to be computed.
  absl::Status InTime(const RequestSpec& spec, uint64_t cached_tokens) const;

  void Enter(const RequestFlow& flow);
  void Admit(const RequestFlow& flow);
  void Pause(const RequestFlow& flow);
  void Resume(uint64_t number);
  void Submitted(const RequestFlow& flow);  // before flow.Submit
  void TokenDelivered(const RequestFlow& flow);
  void Leave(const RequestFlow& flow);
  void Clear();

  bool anyone_waits() const { return queue_.anyone_waits(); }
  uint64_t Next() const { return queue_.Next(); }
  // Paused ones included.
  size_t requests() const { return queue_.requests(); }

 private:
  QueuedRequest Queued(uint64_t number, const RequestSpec& spec) const;
  // What waits has changed.
  void NoteQueue();
  // It has its first token, or no worker has it any more.
  void NoLongerTokenless(const RequestFlow& flow);
  // Measured on the queue itself, or what the workers say of their prefill; absent: nobody knows.
  std::optional<double> PromptTokensPerSecond() const;
  // Of these tokens of a prompt once nothing is ahead of it: one worker runs all of it, the fastest
  // at best, and never faster than the queue moves.
  double PromptSeconds(uint64_t begin, uint64_t end, double queue_rate) const;
  // Trying again helps when `tokens` have got their first token.
  absl::Status RetryLater(const std::string& text, const char* reason, double tokens) const;

  const CoreOptions& options_;
  const Executor& executor_;
  CoreMetrics& metrics_;
  const std::vector<const WorkerView*>& workers_;
  TenantCounters tenants_;  // holds the tenant of every live flow
  AdmissionQueue queue_{tenants_};
  DrainEstimate drain_;
  std::set<uint64_t> tokenless_;  // at a worker, without a first token
  uint64_t tokenless_tokens_ = 0;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_ADMISSION_H_
