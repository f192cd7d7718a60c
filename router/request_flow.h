// One request from admission to its only end: carries out the table of request_state.h.
#ifndef BATON_ROUTER_REQUEST_FLOW_H_
#define BATON_ROUTER_REQUEST_FLOW_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/log.h"
#include "router/circuit_breaker.h"
#include "router/core_metrics.h"
#include "router/core_options.h"
#include "router/delivered.h"
#include "router/placement.h"
#include "router/prompt_names.h"
#include "router/request.h"
#include "router/request_state.h"
#include "router/retry_times.h"
#include "router/worker_link.h"

namespace baton::router {

// Adds to a worker's count of prompts or streams while it lives. Move-only.
class CountLease {
 public:
  using Add = void (WorkerLink::*)(int64_t);
  CountLease() = default;
  CountLease(WorkerLink& link, Add add, uint64_t count)
      : link_(&link), add_(add), count_(static_cast<int64_t>(count)) {
    (link_->*add_)(count_);
  }
  CountLease(CountLease&& other) noexcept { *this = std::move(other); }
  CountLease& operator=(CountLease&& other) noexcept {
    Release();
    link_ = std::exchange(other.link_, nullptr);
    add_ = other.add_;
    count_ = other.count_;
    return *this;
  }
  ~CountLease() { Release(); }
  void Release() {
    if (link_ != nullptr) (std::exchange(link_, nullptr)->*add_)(-count_);
  }

 private:
  WorkerLink* link_ = nullptr;
  Add add_ = nullptr;
  int64_t count_ = 0;
};

// What a flow needs around it. Everything outlives the flows.
struct FlowContext {
  const CoreOptions& options;
  Executor& executor;
  CoreMetrics& metrics;
  const Logger& log;
  const std::vector<std::unique_ptr<WorkerLink>>& links;
};

// Owner thread: the executor's. Invariants: `delivered_` is exactly what the observer saw, in
// order; OnFinished is called once; after it no worker holds anything of the request that has not
// been told to let go of it.
class RequestFlow {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // Place it again, not before `when`.
    virtual void Requeue(RequestFlow& flow, Time when) = 0;
    // The observer has been told; destroy the flow in a later task.
    virtual void Ended(RequestFlow& flow) = 0;
    // The worker answered Submit; the flow may have ended meanwhile.
    virtual void SubmitAnswered(const AttemptId& attempt, const absl::Status& status) = 0;
    virtual void LearnKvBytes(double bytes_per_token) = 0;
    // The observer has it. flow.delivered() counts it, those of all choices together.
    virtual void TokenDelivered(RequestFlow& flow) = 0;
  };

  RequestFlow(uint64_t number, RequestSpec spec, std::unique_ptr<RequestObserver> observer,
              const FlowContext& context, Host& host);

  uint64_t number() const { return number_; }
  const RequestSpec& spec() const { return spec_; }
  size_t delivered() const { return delivered_.tokens(); }
  uint32_t attempts() const { return attempt_.number; }
  RequestState state() const { return state_; }
  bool ended() const {
    return state_ == RequestState::kFinished || state_ == RequestState::kFailed;
  }
  // False between two attempts and after the observer was told.
  bool attempt_live() const { return attempt_.live; }
  // Whether it remembers a worker by this number.
  bool Names(size_t worker) const;
  AttemptId attempt_id() const { return {context_.options.epoch, number_, attempt_.number}; }

  // Once: starts the deadline and tells the observer.
  void Admit();
  PlacementRequest placement_request() const;
  PromptNames& names() { return names_; }
  // A new attempt. In kQueued only.
  void Submit(const Placement& placement);
  // Answer and events of the current, live attempt.
  void OnSubmitAnswer(const absl::Status& status);
  void OnWorkerEvent(size_t worker, const worker::v1::WorkerEvent& event);
  void OnWorkerLost(size_t worker);
  // Any end that is not a worker's word.
  void End(const absl::Status& why);

 private:
  struct NamedSink {
    size_t worker;
    Epoch epoch;
  };
  struct Attempt {
    uint32_t number = 0;
    bool live = false;
    std::optional<size_t> source;  // absent: alone
    Epoch source_epoch;
    std::vector<NamedSink> sinks;  // alone: the one worker
    std::optional<size_t> sink;    // attached, or alone
    // Why named sinks have dropped it, before the source said that one of them had granted.
    std::map<size_t, worker::v1::Cause> early_losses;
    Time submitted;
    std::optional<Time> answered;
    std::optional<Time> started;
    Duration reserve_wait{0};
    bool preempted = false;           // the sink's blocks went to an older sequence
    std::set<uint32_t> first_tokens;  // choices of which the source has sent it
    CountLease prompt;
    CountLease stream;
    // Of the worker that it was submitted to.
    CircuitBreaker::Ticket ticket;
  };

  CountLease StreamLease(WorkerLink& sink) const;
  // The source lost its sink or the sink its source: the source's fault unless the sink is gone for
  // us as well.
  void NoteLostHandoff();
  worker::v1::SubmitRequest MakeSubmit() const;
  void OnStarted(const worker::v1::Started& started);
  void OnNoRoom(worker::v1::Cause cause);
  void OnPromptLogprobs(const worker::v1::PromptLogprobs& event);
  void OnToken(const worker::v1::Token& token, bool from_source);
  void OnCachedPrompt(uint32_t tokens, bool from_source);
  void OnHandedOff(const worker::v1::HandedOff& handed_off);
  void OnGivenUp(size_t worker, worker::v1::Cause cause, const absl::Status& status);

  // Looks the cell up and moves; retries and fails when the cell says so.
  FlowAction Step(FlowEvent event, const absl::Status& why);
  // Which event a token of a choice that exists is; notes the first tokens of the source.
  FlowEvent EventOf(const worker::v1::Token& token, bool from_source);
  // Whether the token is new. Not OK: it contradicts what the client saw, or nobody is there to go
  // on.
  absl::StatusOr<bool> CheckToken(const worker::v1::Token& token) const;
  // Whether everything that was asked for beside the token is there.
  absl::Status CheckLogprobs(const worker::v1::Token& token) const;
  void EndContradicted(const absl::Status& why);
  size_t PromptLogprobsWanted() const {
    return spec_.logprobs.prompt.has_value() ? spec_.prompt.size() - 1 : 0;
  }
  void Deliver(const worker::v1::Token& token);
  void Retry(const absl::Status& why);
  // Tells every worker of the attempt to let go.
  void CancelAttempt();
  // The only end: directly, or for a success after the last report of its source.
  void Finish(const absl::Status& status);
  void TellEnd(const absl::Status& status);
  bool AwaitsHandoffReport() const {
    return attempt_.source.has_value() && delivered_.went_on() && !handed_off_ &&
           context_.links[*attempt_.source]->view().ready;
  }
  void NoteFirstToken(Time now);
  void Account(const absl::Status& status) const;
  bool FromSource(size_t worker) const { return attempt_.source == worker; }
  bool FromSink(size_t worker) const { return attempt_.sink == worker; }

  const uint64_t number_;
  RequestSpec spec_;
  PromptNames names_{spec_};
  std::unique_ptr<RequestObserver> observer_;
  const FlowContext& context_;
  Host& host_;

  RequestState state_ = RequestState::kQueued;
  Attempt attempt_;
  RetryTimes retry_{context_.options.retry_min, context_.options.retry_max};
  std::set<size_t> avoid_;
  std::set<size_t> cut_off_;
  Delivered delivered_;
  size_t prompt_logprobs_ = 0;  // delivered, of prompt[1..]
  RequestSummary summary_;
  TimerHandle deadline_;
  bool handed_off_ = false;
  TimerHandle report_timer_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_REQUEST_FLOW_H_
