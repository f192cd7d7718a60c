#include "router/worker_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/step_times.h"
#include "proto/mapping/ids.h"

namespace baton::router {

using worker::v1::SessionRequest;
using worker::v1::WorkerEvent;

namespace {

constexpr Duration kLeastHeartbeat = std::chrono::milliseconds(10);
constexpr double kMostSeconds = 3600;  // of any part of a step

// None when there are none, or such as nobody measures.
StepTimes StepTimesOf(const worker::v1::WorkerLoad& load) {
  const worker::v1::StepTimes& from = load.step_times();
  const StepTimes times = {from.step_seconds(), from.prompt_token_seconds(),
                           from.decode_row_seconds(), from.prompt_key_seconds(),
                           from.decode_key_seconds()};
  for (const double part :
       {times.step, times.prompt_token, times.decode_row, times.prompt_key, times.decode_key}) {
    if (!(part >= 0 && part <= kMostSeconds)) return {};
  }
  return times;
}

}  // namespace

WorkerLink::WorkerLink(size_t index, const CoreOptions& options, std::string address,
                       std::unique_ptr<WorkerClient> client, Executor& executor, Observer& observer,
                       const Logger& log)
    : index_(index),
      options_(options),
      address_(std::move(address)),
      client_(std::move(client)),
      executor_(executor),
      observer_(observer),
      log_(log),
      backoff_(options.reconnect_min),
      breaker_(options.circuit, executor, [this] { OnCircuit(); }) {}

WorkerLink::~WorkerLink() { Stop(); }

void WorkerLink::Stop() {
  beat_timer_.Cancel();
  open_timer_.Cancel();
  silence_.reset();
  view_.ready = false;
  if (session_ != nullptr) session_->Close(absl::CancelledError("the router stops"));
  session_.reset();
}

void WorkerLink::Retire() {
  retired_ = true;
  if (!view_.ready) Stop();
}

void WorkerLink::Resume() {
  retired_ = false;
  if (session_ != nullptr) return;
  backoff_ = options_.reconnect_min;
  failure_logged_ = false;
  Open();
}

void WorkerLink::Open() {
  session_ = client_->OpenSession(*this);
  silence_.emplace(executor_, options_.worker_silence,
                   [this] { Lose(absl::UnavailableError("silent for too long")); });
  SessionRequest request;
  auto* hello = request.mutable_hello();
  proto::Set(options_.epoch, *hello->mutable_router_epoch());
  hello->set_session_number(++session_number_);
  hello->set_protocol_version(kWorkerProtocolVersion);
  session_->Send(std::move(request));
  DropOldCancels();
  for (const RecentCancel& cancel : cancels_) SendCancel(cancel.attempt);
  heartbeat_ = options_.heartbeat;
  beat_timer_ = executor_.PostAfter(heartbeat_, [this] { Beat(); });
}

void WorkerLink::ScheduleOpen() {
  open_timer_ = executor_.PostAfter(backoff_, [this] { Open(); });
  backoff_ = std::min(backoff_ * 2, options_.reconnect_max);
}

void WorkerLink::Beat() {
  SessionRequest request;
  request.mutable_heartbeat();
  session_->Send(std::move(request));
  beat_timer_ = executor_.PostAfter(heartbeat_, [this] { Beat(); });
}

void WorkerLink::OnMessage(worker::v1::SessionResponse message) {
  if (session_ == nullptr) return;
  silence_->Heard();
  for (const WorkerEvent& event : message.events()) {
    if (session_ == nullptr) return;
    if (event.has_hello()) {
      const absl::Status status = TakeHello(event.hello());
      if (!status.ok()) return Refuse(status);
      observer_.OnWorkerReady(index_);
    } else if (!view_.ready) {
      return Refuse(absl::FailedPreconditionError("the worker spoke before its hello"));
    } else if (event.has_load()) {
      TakeLoad(event.load());
    } else {
      observer_.OnWorkerEvent(index_, event);
    }
  }
  if (session_ != nullptr) observer_.OnWorkerTurn(index_);
}

void WorkerLink::OnClosed(absl::Status status) {
  if (session_ != nullptr) Lose(absl::UnavailableError("session ended: " + status.ToString()));
}

void WorkerLink::Lose(const absl::Status& why) {
  const bool was_ready = std::exchange(view_.ready, false);
  DropSession(why);
  if (was_ready || !failure_logged_) {
    log_.Warning(was_ready ? "worker lost" : "worker not reachable",
                 {{"address", address_}, {"worker", view_.name}, {"why", why.ToString()}});
  }
  failure_logged_ = true;
  if (!retired_) ScheduleOpen();
  if (was_ready) observer_.OnWorkerLost(index_);
}

void WorkerLink::Refuse(const absl::Status& why) {
  log_.Error("worker refused", {{"address", address_}, {"why", why.ToString()}});
  failure_logged_ = true;
  backoff_ = options_.reconnect_max;
  Lose(why);
}

void WorkerLink::OnCircuit() {
  view_.shunned = breaker_.shuns();
  if (breaker_.state() == CircuitBreaker::State::kOpen) {
    log_.Warning("requests keep away from a worker that fails them",
                 {{"address", address_}, {"worker", view_.name}});
  }
  observer_.OnWorkerCircuit(index_);
}

void WorkerLink::DropSession(const absl::Status& why) {
  beat_timer_.Cancel();
  silence_.reset();
  breaker_.Reset();
  later_.clear();
  session_->Close(why);
  executor_.Post([old = std::shared_ptr<WorkerSession>(std::move(session_))] {});
}

absl::Status WorkerLink::TakeHello(const worker::v1::WorkerHello& hello) {
  if (view_.ready) return absl::FailedPreconditionError("a second hello");
  if (hello.protocol_version() != kWorkerProtocolVersion ||
      hello.session_number() != session_number_) {
    return absl::FailedPreconditionError("protocol version or session number differs");
  }
  const Digest vocab_hash = proto::Get(hello.vocab_hash());
  if (options_.vocab_hash.has_value() && vocab_hash != *options_.vocab_hash) {
    return absl::FailedPreconditionError("its vocabulary is not the router's");
  }
  if (hello.block_size() == 0 || hello.pool_blocks().empty() || hello.context_length() == 0) {
    return absl::FailedPreconditionError("its hello names no pool or no context");
  }
  WorkerView view;
  view.ready = true;
  view.draining = hello.draining();
  view.prefill = hello.role() == worker::v1::ROLE_PREFILL;
  view.epoch = proto::Get(hello.worker_epoch());
  view.name = hello.name().empty() ? address_ : hello.name();
  view.model = hello.model();
  view.numerics_id = proto::Get(hello.numerics_id());
  view.layout_fp = proto::Get(hello.layout_fp());
  view.block_size = hello.block_size();
  view.pool_blocks.assign(hello.pool_blocks().begin(), hello.pool_blocks().end());
  view.free_blocks = view.pool_blocks;
  view.context_length = hello.context_length();
  view.transfer_address = hello.transfer_address();
  view.prompts_in_flight = view_.prompts_in_flight;
  view.new_tokens_in_flight = view_.new_tokens_in_flight;
  view.streams = view_.streams;
  view.choices = view_.choices;
  view_ = std::move(view);
  backoff_ = options_.reconnect_min;
  failure_logged_ = false;
  reported_prefill_tokens_ = 0;
  // A worker with a short lease must hear from us more often, but one that names no sensible lease
  // must not keep us busy.
  if (hello.lease_ms() > 0) {
    const Duration quarter = std::chrono::milliseconds(hello.lease_ms()) / 4;
    heartbeat_ = std::min(heartbeat_, std::max(quarter, kLeastHeartbeat));
  }
  beat_timer_ = executor_.PostAfter(heartbeat_, [this] { Beat(); });
  log_.Info("worker ready", {{"address", address_},
                             {"worker", view_.name},
                             {"epoch", view_.epoch.ToString()},
                             {"role", view_.prefill ? "prefill" : "decode"},
                             {"blocks", view_.pool_blocks[0]}});
  return absl::OkStatus();
}

void WorkerLink::TakeLoad(const worker::v1::WorkerLoad& load) {
  while (!later_.empty() && later_.front().number <= load.last_submit_number()) {
    later_.pop_front();
  }
  view_.queued_prefill_tokens = load.queued_prefill_tokens();
  for (const LaterSubmit& submit : later_) view_.queued_prefill_tokens += submit.new_tokens;
  view_.running = load.running();
  view_.free_blocks.assign(load.free_blocks().begin(), load.free_blocks().end());
  view_.prefill_tokens_per_second = load.prefill_tokens_per_second();
  view_.prompt_steps = load.prompt_steps();
  view_.step_times = StepTimesOf(load);
  view_.decode_keys = load.decode_keys();
  view_.transfer_bytes_per_second = load.transfer_bytes_per_second();
  view_.draining = load.draining();
}

void WorkerLink::Submit(worker::v1::SubmitRequest request, uint64_t new_tokens,
                        std::function<void(absl::Status)> done) {
  request.set_session_number(session_number_);
  request.set_submit_number(++submit_number_);
  proto::Set(view_.epoch, *request.mutable_worker_epoch());
  later_.push_back({submit_number_, new_tokens});
  view_.queued_prefill_tokens += new_tokens;
  view_.last_prompt = executor_.Now();
  client_->Submit(std::move(request), options_.submit_timeout, std::move(done));
}

void WorkerLink::AddPrompt(int64_t new_tokens) {
  view_.prompts_in_flight += static_cast<uint32_t>(new_tokens > 0 ? 1 : -1);
  view_.new_tokens_in_flight += static_cast<uint64_t>(new_tokens);
  observer_.OnWorkerCounts(index_);
}

void WorkerLink::AddStream(int64_t choices) {
  view_.streams += static_cast<uint32_t>(choices > 0 ? 1 : -1);
  view_.choices += static_cast<uint32_t>(choices);
  observer_.OnWorkerCounts(index_);
}

void WorkerLink::Attach(const AttemptId& attempt) {
  if (!view_.ready) return;
  SessionRequest request;
  proto::Set(attempt, *request.mutable_attach()->mutable_attempt());
  session_->Send(std::move(request));
}

void WorkerLink::AskForCachePage(uint32_t page) {
  if (!view_.ready) return;
  SessionRequest request;
  request.mutable_cache_snapshot_request()->set_page(page);
  session_->Send(std::move(request));
}

void WorkerLink::Cancel(const AttemptId& attempt) {
  DropOldCancels();
  cancels_.push_back({executor_.Now(), attempt});
  if (session_ != nullptr) SendCancel(attempt);
}

// The loss of a session may go unnoticed for so long, and a Submit be on its way.
void WorkerLink::DropOldCancels() {
  const Time old = executor_.Now() - options_.worker_silence - options_.submit_timeout;
  while (!cancels_.empty() && cancels_.front().when < old) cancels_.pop_front();
}

void WorkerLink::SendCancel(const AttemptId& attempt) {
  SessionRequest request;
  proto::Set(attempt, *request.mutable_cancel()->mutable_attempt());
  session_->Send(std::move(request));
}

}  // namespace baton::router
