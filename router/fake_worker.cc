#include "router/fake_worker.h"

#include <utility>

#include "common/check.h"
#include "proto/mapping/cache_events.h"
#include "proto/mapping/ids.h"

namespace baton::router {

using worker::v1::SessionRequest;
using worker::v1::SessionResponse;
using worker::v1::WorkerEvent;

// Lives in the core's hands; `shared` outlives it for what is on its way.
class FakeWorker::Session : public WorkerSession {
 public:
  struct Shared {
    WorkerSession::Listener* listener;
  };

  Session(FakeWorker& worker, Listener& listener)
      : worker_(worker), shared_(std::make_shared<Shared>(Shared{&listener})) {
    worker_.session_ = this;
    ++worker_.sessions_opened;
  }
  ~Session() override { Detach(); }

  void Send(SessionRequest message) override {
    const std::string bytes = message.SerializeAsString();
    worker_.executor_.Post([this, shared = shared_, bytes] {
      if (shared->listener == nullptr) return;
      SessionRequest copy;
      BATON_CHECK(copy.ParseFromString(bytes));
      worker_.Receive(copy);
    });
  }

  void Close(absl::Status /*status*/) override { Detach(); }

  void ToRouter(const SessionResponse& message) {
    worker_.executor_.Post([shared = shared_, bytes = message.SerializeAsString()] {
      SessionResponse copy;
      BATON_CHECK(copy.ParseFromString(bytes));
      if (shared->listener != nullptr) shared->listener->OnMessage(std::move(copy));
    });
  }

  void End() {
    worker_.session_ = nullptr;
    worker_.executor_.Post([shared = shared_] {
      if (shared->listener == nullptr) return;
      std::exchange(shared->listener, nullptr)->OnClosed(absl::UnavailableError("crashed"));
    });
  }

 private:
  void Detach() {
    shared_->listener = nullptr;
    if (worker_.session_ == this) worker_.session_ = nullptr;
  }

  FakeWorker& worker_;
  std::shared_ptr<Shared> shared_;
};

class FakeWorker::Client : public WorkerClient {
 public:
  explicit Client(FakeWorker& worker) : worker_(worker) {}
  ~Client() override { worker_.unanswered_.clear(); }

  std::unique_ptr<WorkerSession> OpenSession(WorkerSession::Listener& listener) override {
    return std::make_unique<Session>(worker_, listener);
  }

  void Submit(worker::v1::SubmitRequest request, Duration timeout,
              std::function<void(absl::Status)> done) override {
    worker_.submits.push_back(std::move(request));
    if (worker_.submit_answer.has_value()) {
      worker_.executor_.Post(
          [done = std::move(done), status = *worker_.submit_answer] { done(status); });
      return;
    }
    TimerHandle timer = worker_.executor_.PostAfter(
        timeout, [done] { done(absl::DeadlineExceededError("no answer")); });
    worker_.unanswered_.push_back({std::move(done), std::move(timer)});
  }

 private:
  FakeWorker& worker_;
};

FakeWorker::FakeWorker(Executor& executor, Options options)
    : executor_(executor), options_(std::move(options)) {}

std::unique_ptr<WorkerClient> FakeWorker::Connect() { return std::make_unique<Client>(*this); }

void FakeWorker::Answer(const absl::Status& status) {
  BATON_CHECK(!unanswered_.empty());
  executor_.Post([done = std::move(unanswered_.back().done), status] { done(status); });
  unanswered_.pop_back();
}

void FakeWorker::Receive(const SessionRequest& request) {
  if (request.has_hello()) {
    session_number_ = request.hello().session_number();
    if (answers_hello) Hello();
  } else if (request.has_heartbeat()) {
    ++heartbeats;
    if (answers_heartbeats) Send({});
  } else if (request.has_attach()) {
    attaches.push_back(proto::Get(request.attach().attempt()));
  } else if (request.has_cancel()) {
    cancels.push_back(proto::Get(request.cancel().attempt()));
  } else if (request.has_cache_snapshot_request()) {
    cache_pages_asked.push_back(request.cache_snapshot_request().page());
    SendCachePage();
  }
}

void FakeWorker::SendCachePage() {
  if (!cache_page.has_value()) return;
  WorkerEvent event;
  proto::Set(*cache_page, *event.mutable_cache_snapshot());
  Send({event});
}

void FakeWorker::CacheEvents(const kv::CacheEventBatch& batch) {
  WorkerEvent event;
  proto::Set(batch, *event.mutable_cache_events());
  Send({event});
}

void FakeWorker::Send(std::vector<WorkerEvent> events) {
  if (session_ == nullptr) return;
  SessionResponse message;
  for (WorkerEvent& event : events) *message.add_events() = std::move(event);
  session_->ToRouter(message);
}

void FakeWorker::Hello() {
  WorkerEvent event;
  auto* hello = event.mutable_hello();
  proto::Set(options_.epoch, *hello->mutable_worker_epoch());
  hello->set_session_number(session_number_);
  hello->set_protocol_version(1);
  hello->set_name(options_.name);
  hello->set_role(options_.prefill ? worker::v1::ROLE_PREFILL : worker::v1::ROLE_DECODE);
  hello->set_model("tiny");
  proto::Set(options_.numerics_id, *hello->mutable_numerics_id());
  proto::Set(options_.layout_fp, *hello->mutable_layout_fp());
  proto::Set(options_.vocab_hash, *hello->mutable_vocab_hash());
  hello->set_block_size(options_.block_size);
  hello->add_pool_blocks(options_.pool_blocks);
  hello->set_context_length(options_.context_length);
  hello->set_lease_ms(options_.lease_ms);
  hello->set_transfer_address("transfer-" + options_.name);
  Send({event});
}

void FakeWorker::Crash() {
  if (session_ != nullptr) session_->End();
}

void FakeWorker::Restart(Epoch epoch) {
  Crash();
  options_.epoch = epoch;
}

void FakeWorker::Started(const AttemptId& attempt, const FakeWorker& sink) {
  WorkerEvent event;
  auto* started = event.mutable_started();
  proto::Set(attempt, *started->mutable_attempt());
  started->set_sink_address("transfer-" + sink.options_.name);
  proto::Set(sink.options_.epoch, *started->mutable_sink_epoch());
  Send({event});
}

void FakeWorker::FirstToken(const AttemptId& attempt, uint32_t position, TokenId token, bool last,
                            uint32_t choice) {
  WorkerEvent event;
  Fill(attempt, position, token, last, *event.mutable_first_token()->mutable_token());
  event.mutable_first_token()->mutable_token()->set_choice(choice);
  Send({event});
}

void FakeWorker::Token(const AttemptId& attempt, uint32_t position, TokenId token, bool last,
                       uint32_t choice) {
  WorkerEvent event;
  Fill(attempt, position, token, last, *event.mutable_token());
  event.mutable_token()->set_choice(choice);
  Send({event});
}

void FakeWorker::Fill(const AttemptId& attempt, uint32_t position, TokenId token, bool last,
                      worker::v1::Token& out) const {
  proto::Set(attempt, *out.mutable_attempt());
  out.set_position(position);
  out.set_token(token);
  out.set_visible_bytes(position);
  if (last) out.set_finish_reason(worker::v1::FINISH_REASON_LENGTH);
  if (with_logprobs) out.mutable_logprobs()->set_logprob(-static_cast<float>(position));
}

void FakeWorker::PromptLogprobs(const AttemptId& attempt, uint32_t position, uint32_t count) {
  WorkerEvent event;
  worker::v1::PromptLogprobs& out = *event.mutable_prompt_logprobs();
  proto::Set(attempt, *out.mutable_attempt());
  out.set_position(position);
  for (uint32_t at = position; at < position + count; ++at) {
    out.add_logprobs()->set_logprob(-static_cast<float>(at));
  }
  Send({event});
}

void FakeWorker::CachedPrompt(const AttemptId& attempt, uint32_t tokens) {
  WorkerEvent event;
  proto::Set(attempt, *event.mutable_cached_prompt()->mutable_attempt());
  event.mutable_cached_prompt()->set_tokens(tokens);
  Send({event});
}

void FakeWorker::HandedOff(const AttemptId& attempt, Duration handoff, uint64_t bytes,
                           uint32_t tokens) {
  WorkerEvent event;
  proto::Set(attempt, *event.mutable_handed_off()->mutable_attempt());
  event.mutable_handed_off()->set_handoff_ns(static_cast<uint64_t>(handoff.count()));
  event.mutable_handed_off()->set_bytes(bytes);
  event.mutable_handed_off()->set_tokens(tokens);
  Send({event});
}

void FakeWorker::NoRoom(const AttemptId& attempt, worker::v1::Cause cause) {
  WorkerEvent event;
  event.mutable_no_room()->set_cause(cause);
  proto::Set(attempt, *event.mutable_no_room()->mutable_attempt());
  Send({event});
}

void FakeWorker::Lost(const AttemptId& attempt, worker::v1::Cause cause) {
  WorkerEvent event;
  proto::Set(attempt, *event.mutable_lost()->mutable_attempt());
  event.mutable_lost()->set_cause(cause);
  Send({event});
}

void FakeWorker::Failed(const AttemptId& attempt, absl::StatusCode code, worker::v1::Cause cause) {
  WorkerEvent event;
  proto::Set(attempt, *event.mutable_failed()->mutable_attempt());
  event.mutable_failed()->set_code(static_cast<int>(code));
  event.mutable_failed()->set_cause(cause);
  Send({event});
}

void FakeWorker::Load(uint64_t last_submit, uint64_t queued_tokens, uint32_t free_blocks,
                      double prefill_tokens_per_second) {
  WorkerEvent event;
  auto* load = event.mutable_load();
  load->set_last_submit_number(last_submit);
  load->set_queued_prefill_tokens(queued_tokens);
  load->add_free_blocks(free_blocks);
  load->set_prefill_tokens_per_second(prefill_tokens_per_second);
  if (step_times.has_value()) *load->mutable_step_times() = *step_times;
  Send({event});
}

AttemptId FakeWorker::last_attempt() const {
  BATON_CHECK(!submits.empty());
  return proto::Get(submits.back().state().attempt());
}

}  // namespace baton::router
