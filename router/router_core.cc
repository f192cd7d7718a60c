#include "router/router_core.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "common/metrics.h"
#include "common/status_macros.h"
#include "proto/mapping/ids.h"
#include "router/admission.h"
#include "router/circuit_breaker.h"
#include "router/core_metrics.h"
#include "router/error_reasons.h"
#include "router/placement.h"
#include "router/prompt_names.h"
#include "router/prompt_placement.h"
#include "router/request_flow.h"
#include "router/status_details.h"
#include "router/worker_link.h"

namespace baton::router {
namespace {

using worker::v1::WorkerEvent;

const state::v1::AttemptId* AttemptOf(const WorkerEvent& event) {
  switch (event.event_case()) {
    case WorkerEvent::kStarted:
      return &event.started().attempt();
    case WorkerEvent::kFirstToken:
      return &event.first_token().token().attempt();
    case WorkerEvent::kToken:
      return &event.token().attempt();
    case WorkerEvent::kPromptLogprobs:
      return &event.prompt_logprobs().attempt();
    case WorkerEvent::kCachedPrompt:
      return &event.cached_prompt().attempt();
    case WorkerEvent::kHandedOff:
      return &event.handed_off().attempt();
    case WorkerEvent::kNoRoom:
      return &event.no_room().attempt();
    case WorkerEvent::kLost:
      return &event.lost().attempt();
    case WorkerEvent::kFailed:
      return &event.failed().attempt();
    default:
      return nullptr;
  }
}

}  // namespace

class RouterCore::Impl : public WorkerLink::Observer, public RequestFlow::Host {
 public:
  Impl(CoreOptions options, Executor& executor, const WorkerClientFactory& connect,
       MetricsRegistry& metrics, const Logger& log)
      : options_(std::move(options)),
        executor_(executor),
        connect_(connect),
        metrics_(metrics),
        log_(log),
        context_{options_, executor_, metrics_, log_, links_},
        placement_(options_, executor_, metrics, links_, views_),
        admission_(options_, executor_, metrics_, views_) {
    for (const WorkerAddress& worker : options_.workers) MakeLink(worker.address);
  }

  ~Impl() override {
    // The counts of the flows' leases live in the links.
    flows_.clear();
  }

  void Start() {
    for (const auto& link : links_) link->Start();
  }

  void Stop() {
    alive_.reset();
    pausing_.clear();
    admission_.Clear();
    flows_.clear();
    for (const auto& link : links_) link->Stop();
  }

  void AddWorker(const WorkerAddress& worker) {
    WorkerLink* const known = FindLink(worker.address);
    if (known == nullptr) {
      MakeLink(worker.address).Start();
    } else if (known->retired()) {
      known->Resume();
    }
    ReportWorkers();
  }

  void RemoveWorker(const std::string& address) {
    WorkerLink* const link = FindLink(address);
    if (link != nullptr) link->Retire();
    ReportWorkers();
  }

  uint64_t Generate(RequestSpec spec, std::unique_ptr<RequestObserver> observer) {
    const uint64_t number = ++last_number_;
    Post([this, number, spec = std::move(spec),
          observer = std::make_shared<std::unique_ptr<RequestObserver>>(std::move(
              observer))]() mutable { Admit(number, std::move(spec), std::move(*observer)); });
    return number;
  }

  void Cancel(uint64_t request, absl::Status why) {
    Post([this, request, why = std::move(why)] {
      const auto flow = flows_.find(request);
      if (flow != flows_.end()) flow->second->End(why);
    });
  }

  absl::Status CheckRoom(uint64_t prompt_tokens) {
    const absl::Status status = admission_.Room(prompt_tokens);
    if (!status.ok()) CountRefusal(status);
    return status;
  }

  uint32_t ContextLength() const {
    uint32_t longest = 0;
    for (const WorkerView* view : views_) {
      if (view->ready && !view->draining && !view->prefill) {
        longest = std::max(longest, view->context_length);
      }
    }
    return longest;
  }

  std::vector<BlockNaming> BlockNamings() const {
    const std::span<const BlockNaming> known = placement_.BlockNamings();
    return {known.begin(), known.end()};
  }
  bool CanServe() const { return ContextLength() > 0; }
  size_t worker_places() const { return links_.size(); }
  size_t live_requests() const { return live_; }
  size_t waiting_requests() const { return admission_.requests(); }

 private:
  // Runs later, unless the core is gone by then.
  void Post(std::function<void()> task) {
    executor_.Post([alive = std::weak_ptr<int>(alive_), task = std::move(task)] {
      if (!alive.expired()) task();
    });
  }

  WorkerLink* FindLink(const std::string& address) const {
    for (const auto& link : links_) {
      if (link->address() == address) return link.get();
    }
    return nullptr;
  }

  // Workers that come and go must not make the list longer for ever: the place of one that is gone
  // is taken again when no request knows its number.
  size_t FreePlace() const {
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i]->gone() && std::none_of(flows_.begin(), flows_.end(), [i](const auto& flow) {
            return flow.second->Names(i);
          })) {
        return i;
      }
    }
    return links_.size();
  }

  WorkerLink& MakeLink(const std::string& address) {
    const size_t place = FreePlace();
    if (place == links_.size()) {
      links_.emplace_back();
      views_.push_back(nullptr);
    }
    links_[place] = std::make_unique<WorkerLink>(place, options_, address, connect_(address),
                                                 executor_, *this, log_);
    views_[place] = &links_[place]->view();
    return *links_[place];
  }

  void Admit(uint64_t number, RequestSpec spec, std::unique_ptr<RequestObserver> observer) {
    const absl::Status status = Check(spec);
    auto owned = std::make_unique<RequestFlow>(number, std::move(spec), std::move(observer),
                                               context_, *this);
    RequestFlow& flow = *owned;
    flows_.emplace(number, std::move(owned));
    ++live_;
    admission_.Enter(flow);
    if (!status.ok()) {
      CountRefusal(status);
      return flow.End(status);
    }
    flow.Admit();
    if (flow.ended()) return;
    admission_.Admit(flow);
    Dispatch();
  }

  void CountRefusal(const absl::Status& status) {
    metrics_.refusals.With({ReasonOf(status)}).Increment();
  }

  // Refuses what can never run, then what cannot now; caps max_tokens.
  absl::Status Check(RequestSpec& spec) {
    const uint32_t context = ContextLength();
    if (context == 0) return NoWorker();
    if (spec.prompt.empty()) return BadField("generation.prompt", "must not be empty");
    if (spec.prompt.size() >= context) {
      return BadField("generation.prompt",
                      "has " + std::to_string(spec.prompt.size()) +
                          " tokens; must be shorter than the context of " + std::to_string(context),
                      kReasonPromptTooLong);
    }
    const uint32_t wanted =
        spec.stop.max_tokens > 0 ? spec.stop.max_tokens : options_.default_max_tokens;
    spec.stop.max_tokens =
        std::min<uint32_t>(wanted, context - static_cast<uint32_t>(spec.prompt.size()));
    BATON_RETURN_IF_ERROR(CheckAgainstPrompt(spec));
    PlacementRequest request;
    request.prompt_tokens = spec.prompt.size();
    request.n = spec.choices();
    request.max_tokens = spec.stop.max_tokens;
    const Placement placement = placement_.Possible(request);
    if (placement.verdict == PlacementVerdict::kNeverFits) {
      return NeverFits(spec, request, placement);
    }
    if (placement.verdict == PlacementVerdict::kNoWorker) return NoWorker();
    BATON_RETURN_IF_ERROR(admission_.Room(spec.prompt.size()));
    return admission_.InTime(spec, ThoughtCached(spec, request));
  }

  // For the prediction of its first token, when anybody asks for one.
  uint64_t ThoughtCached(const RequestSpec& spec, const PlacementRequest& request) {
    if (!spec.deadline.has_value() && options_.ttft_target == Duration{0}) return 0;
    PromptNames names(spec);
    return placement_.Choose(request, names).cached_tokens;
  }

  // Limits that depend on the prompt's length.
  static absl::Status CheckAgainstPrompt(const RequestSpec& spec) {
    if (spec.stop.min_tokens > spec.stop.max_tokens) {
      return BadField("generation.stop.min_tokens", "is " + std::to_string(spec.stop.min_tokens) +
                                                        "; max_tokens and the context leave " +
                                                        std::to_string(spec.stop.max_tokens));
    }
    BATON_RETURN_IF_ERROR(CheckAnswerSize(spec));
    if (!spec.logprobs.prompt.has_value()) return absl::OkStatus();
    const uint64_t entries = spec.prompt.size() * (uint64_t{*spec.logprobs.prompt} + 1);
    if (entries <= kMaxPromptLogprobs) return absl::OkStatus();
    return BadField("generation.logprobs.prompt",
                    "asks for " + std::to_string(entries) + " log probabilities of " +
                        std::to_string(spec.prompt.size()) + " tokens; at most " +
                        std::to_string(kMaxPromptLogprobs));
  }

  // One message must not grow beyond what a client receives, nor what is kept for it until then.
  static absl::Status CheckAnswerSize(const RequestSpec& spec) {
    if (spec.streamed || !spec.logprobs.output.has_value()) return absl::OkStatus();
    const uint64_t entries =
        uint64_t{spec.choices()} * spec.stop.max_tokens * (uint64_t{*spec.logprobs.output} + 1);
    if (entries <= kMaxLogprobsInOneMessage) return absl::OkStatus();
    return BadField("generation.logprobs.output",
                    "asks for up to " + std::to_string(entries) + " log probabilities (" +
                        std::to_string(spec.choices()) + " choices of " +
                        std::to_string(spec.stop.max_tokens) + " tokens) in one message; at most " +
                        std::to_string(kMaxLogprobsInOneMessage) +
                        ", and a stream has no such limit");
  }

  static absl::Status NoWorker() {
    return ErrorWithReason(absl::StatusCode::kUnavailable, "no worker can serve now",
                           kReasonNoWorker);
  }

  bool EverFits(const PlacementRequest& request) const {
    return placement_.Possible(request).verdict != PlacementVerdict::kNeverFits;
  }

  // Names the number of choices when one alone would fit, the prompt when not even one token does.
  absl::Status NeverFits(const RequestSpec& spec, PlacementRequest request,
                         const Placement& placement) const {
    std::string field = spec.ranked() ? "generation.best_of" : "generation.n";
    request.n = 1;
    if (!EverFits(request)) {
      request.max_tokens = 1;
      field = EverFits(request) ? "generation.stop.max_tokens" : "generation.prompt";
    }
    const std::string what =
        spec.choices() > 1
            ? "the prompt and " + std::to_string(spec.choices()) + " choices of max_tokens"
            : "prompt and max_tokens";
    return BadField(field,
                    what + " need " + std::to_string(placement.needed_blocks) +
                        " KV blocks; the largest worker has " +
                        std::to_string(placement.largest_pool),
                    kReasonNeverFits);
  }

  void ScheduleDispatch() {
    if (!admission_.anyone_waits() || dispatch_scheduled_) return;
    dispatch_scheduled_ = true;
    Post([this] {
      dispatch_scheduled_ = false;
      Dispatch();
    });
  }

  // In the queue's order; stops at the first that has to wait, so that nobody is overtaken for
  // ever.
  void Dispatch() {
    while (admission_.anyone_waits()) {
      RequestFlow& flow = *flows_.at(admission_.Next());
      const PlacementRequest request = flow.placement_request();
      const Placement placement = placement_.Choose(request, flow.names());
      if (placement.verdict == PlacementVerdict::kWait) break;
      if (placement.verdict == PlacementVerdict::kPlaced) {
        admission_.Submitted(flow);
        placement_.NotePlaced(placement);
        flow.Submit(placement);
      } else {
        flow.End(placement.verdict == PlacementVerdict::kNeverFits
                     ? NeverFits(flow.spec(), request, placement)
                     : NoWorker());
      }
    }
    UpdateRunning();
  }

  void UpdateRunning() { metrics_.running.Set(static_cast<double>(live_ - admission_.requests())); }

  // RequestFlow::Host
  void Requeue(RequestFlow& flow, Time when) override {
    const uint64_t number = flow.number();
    admission_.Pause(flow);
    pausing_[number] = executor_.PostAt(when, [this, number] {
      pausing_.erase(number);
      admission_.Resume(number);
      Dispatch();
    });
    UpdateRunning();
  }

  void Ended(RequestFlow& flow) override {
    pausing_.erase(flow.number());
    admission_.Leave(flow);
    --live_;
    UpdateRunning();
    Post([this, number = flow.number()] { flows_.erase(number); });
    ScheduleDispatch();
  }

  void SubmitAnswered(const AttemptId& attempt, const absl::Status& status) override {
    RequestFlow* flow = FindLive(attempt);
    if (flow != nullptr) flow->OnSubmitAnswer(status);
  }

  void TokenDelivered(RequestFlow& flow) override { admission_.TokenDelivered(flow); }

  void LearnKvBytes(double bytes_per_token) override { placement_.LearnKvBytes(bytes_per_token); }

  // WorkerLink::Observer
  void OnWorkerReady(size_t worker) override {
    placement_.OnReady(worker);
    ReportWorkers();
    ReconsiderOthers(worker);
  }
  void OnWorkerTurn(size_t /*worker*/) override {
    if (CanServe() != reported_.can_serve) ReportWorkers();
    ScheduleDispatch();
  }

  void ReportWorkers() {
    reported_.ready = static_cast<size_t>(std::count_if(
        views_.begin(), views_.end(), [](const WorkerView* view) { return view->ready; }));
    reported_.all_ready = std::all_of(links_.begin(), links_.end(), [](const auto& link) {
      return link->retired() || link->view().ready;
    });
    reported_.can_serve = CanServe();
    if (options_.on_workers) options_.on_workers(reported_);
  }

  void ReconsiderOthers(size_t worker) {
    for (size_t i = 0; i < links_.size(); ++i) {
      if (i != worker) links_[i]->Reconsider();
    }
  }

  void OnWorkerCircuit(size_t worker) override {
    const CircuitBreaker::State state = links_[worker]->circuit();
    metrics_.circuit_open.With({views_[worker]->name})
        .Set(state == CircuitBreaker::State::kClosed ? 0 : 1);
    if (state == CircuitBreaker::State::kOpen) metrics_.circuit_openings.Increment();
    ScheduleDispatch();
  }

  void OnWorkerCounts(size_t worker) override {
    const WorkerView& view = *views_[worker];
    metrics_.inflight.With({view.name}).Set(std::max(view.prompts_in_flight, view.streams));
  }

  void OnWorkerEvent(size_t worker, const WorkerEvent& event) override {
    if (placement_.OnEvent(worker, event)) return;
    const state::v1::AttemptId* attempt = AttemptOf(event);
    if (attempt == nullptr) return;
    const AttemptId id = proto::Get(*attempt);
    RequestFlow* flow = FindLive(id);
    if (flow != nullptr) return flow->OnWorkerEvent(worker, event);
    AnswerLate(worker, id, event);
  }

  RequestFlow* FindLive(const AttemptId& id) {
    const auto found = flows_.find(id.request);
    if (found == flows_.end()) return nullptr;
    RequestFlow& flow = *found->second;
    return flow.attempt_live() && flow.attempt_id() == id ? &flow : nullptr;
  }

  // A worker that works for an attempt that has ended is told so. An attempt of another router is
  // not ours to cancel: the worker would end the session.
  void AnswerLate(size_t worker, const AttemptId& id, const WorkerEvent& event) {
    if (id.router != options_.epoch) return metrics_.odd_events.Increment();
    if (!event.has_started() && !event.has_first_token()) return;
    links_[worker]->Cancel(id);
    if (!event.has_started()) return;
    const Epoch sink = proto::Get(event.started().sink_epoch());
    for (const auto& link : links_) {
      if (link->view().epoch == sink) link->Cancel(id);
    }
  }

  void OnWorkerLost(size_t worker) override {
    placement_.OnLost(worker);
    for (const auto& [number, flow] : flows_) flow->OnWorkerLost(worker);
    ReportWorkers();
    ReconsiderOthers(worker);
    ScheduleDispatch();
  }

  const CoreOptions options_;
  Executor& executor_;
  const WorkerClientFactory connect_;
  CoreMetrics metrics_;
  const Logger& log_;
  const FlowContext context_;

  std::vector<std::unique_ptr<WorkerLink>> links_;
  std::vector<const WorkerView*> views_;
  std::map<uint64_t, std::unique_ptr<RequestFlow>> flows_;
  PromptPlacement placement_;
  Admission admission_;
  std::map<uint64_t, TimerHandle> pausing_;
  size_t live_ = 0;  // flows that have not ended
  uint64_t last_number_ = 0;
  bool dispatch_scheduled_ = false;
  WorkersState reported_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

RouterCore::RouterCore(CoreOptions options, Executor& executor, const WorkerClientFactory& connect,
                       MetricsRegistry& metrics, const Logger& log)
    : impl_(std::make_unique<Impl>(std::move(options), executor, connect, metrics, log)) {}
RouterCore::~RouterCore() = default;

void RouterCore::Start() { impl_->Start(); }
void RouterCore::Stop() { impl_->Stop(); }
void RouterCore::AddWorker(const WorkerAddress& worker) { impl_->AddWorker(worker); }
void RouterCore::RemoveWorker(const std::string& address) { impl_->RemoveWorker(address); }
uint64_t RouterCore::Generate(RequestSpec spec, std::unique_ptr<RequestObserver> observer) {
  return impl_->Generate(std::move(spec), std::move(observer));
}
absl::Status RouterCore::CheckRoom(uint64_t prompt_tokens) {
  return impl_->CheckRoom(prompt_tokens);
}
void RouterCore::Cancel(uint64_t request, absl::Status why) {
  impl_->Cancel(request, std::move(why));
}
uint32_t RouterCore::ContextLength() const { return impl_->ContextLength(); }
std::vector<BlockNaming> RouterCore::BlockNamings() const { return impl_->BlockNamings(); }
bool RouterCore::CanServe() const { return impl_->CanServe(); }
size_t RouterCore::worker_places() const { return impl_->worker_places(); }
size_t RouterCore::live_requests() const { return impl_->live_requests(); }
size_t RouterCore::waiting_requests() const { return impl_->waiting_requests(); }

}  // namespace baton::router
