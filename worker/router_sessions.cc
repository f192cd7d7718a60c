#include "worker/router_sessions.h"

#include <string>
#include <utility>

#include "common/silence_watch.h"
#include "proto/mapping/cache_events.h"
#include "proto/mapping/ids.h"
#include "worker/worker_options.h"

namespace baton::worker {
namespace {

// One event has at most some 5 MB (kMaxPromptLogprobs), a message at most 16 MiB.
constexpr size_t kSendBytes = size_t{4} << 20;

// Some 50 bytes each.
constexpr uint32_t kPageBlocks = 4096;
constexpr size_t kEventsOfAMessage = 16384;

// Speeds change with every step; they travel with the other numbers and with heartbeats.
bool SameCounts(const v1::WorkerLoad& a, const v1::WorkerLoad& b) {
  if (a.free_blocks_size() != b.free_blocks_size()) return false;
  for (int i = 0; i < a.free_blocks_size(); ++i) {
    if (a.free_blocks(i) != b.free_blocks(i)) return false;
  }
  return a.last_submit_number() == b.last_submit_number() && a.running() == b.running() &&
         a.waiting() == b.waiting() && a.queued_prefill_tokens() == b.queued_prefill_tokens() &&
         a.draining() == b.draining();
}

}  // namespace

class RouterSessions::Session : public RouterStream::Listener {
 public:
  Session(RouterSessions& owner, uint64_t key, std::unique_ptr<RouterStream> stream)
      : owner_(owner),
        key_(key),
        silence_(owner.executor_, owner.options_.lease, [this] { OnSilence(); }),
        stream_(std::move(stream)) {}

  uint64_t key() const { return key_; }
  bool is_open() const { return router_.has_value(); }
  const Epoch& router() const { return *router_; }
  uint64_t number() const { return number_; }
  RouterStream& stream() { return *stream_; }
  void NoteSubmit(uint64_t submit_number) { last_submit_ = submit_number; }

  void OnMessage(v1::SessionRequest message) override {
    silence_.Heard();
    const absl::Status status = Take(message);
    if (!status.ok()) owner_.End(*this, status, v1::CAUSE_MALFORMED);
  }

  void OnClosed(absl::Status status) override { owner_.End(*this, status, v1::CAUSE_PEER_LOST); }

  // Everything waits for the end of the step, but for prompts' log probabilities that would make a
  // message too large to be received.
  void Emit(v1::WorkerEvent event) {
    outgoing_bytes_ += event.ByteSizeLong();
    *outgoing_.add_events() = std::move(event);
    if (outgoing_bytes_ > kSendBytes) SendOutgoing();
  }

  // A heartbeat carries the load in any case.
  void Send(v1::WorkerLoad load, bool heartbeat) {
    load.set_last_submit_number(last_submit_);
    if (heartbeat || !SameCounts(load, last_load_)) {
      last_load_ = load;
      *outgoing_.add_events()->mutable_load() = std::move(load);
    }
    if (outgoing_.events_size() > 0) SendOutgoing();
  }

  // Those since it asked for its first page.
  void EmitCacheEvents() {
    if (!next_cache_event_.has_value()) return;
    const kv::CacheEventBatch batch =
        owner_.host_.CacheEventsFrom(*next_cache_event_, kEventsOfAMessage);
    next_cache_event_ = batch.next_sequence();
    if (batch.events.empty()) return;
    v1::WorkerEvent event;
    proto::Set(batch, *event.mutable_cache_events());
    Emit(std::move(event));
  }

 private:
  void EmitCachePage(uint32_t begin) {
    const kv::CacheSnapshotPage page = owner_.host_.CachePage(begin, kPageBlocks);
    if (!next_cache_event_.has_value()) next_cache_event_ = page.as_of;
    v1::WorkerEvent event;
    proto::Set(page, *event.mutable_cache_snapshot());
    Emit(std::move(event));
    owner_.Touch();
  }

  void SendOutgoing() {
    outgoing_bytes_ = 0;
    stream_->Send(std::exchange(outgoing_, {}));
  }

  absl::Status Take(const v1::SessionRequest& message) {
    if (message.has_hello()) return TakeHello(message.hello());
    if (!is_open()) return absl::FailedPreconditionError("the first message must be a hello");
    if (message.has_attach()) return TakeAttempt(message.attach().attempt(), true);
    if (message.has_cancel()) return TakeAttempt(message.cancel().attempt(), false);
    if (message.has_cache_snapshot_request()) {
      EmitCachePage(message.cache_snapshot_request().page());
    }
    return absl::OkStatus();  // a heartbeat, or a message of a later version
  }

  absl::Status TakeHello(const v1::RouterHello& hello) {
    if (is_open()) return absl::FailedPreconditionError("a second hello");
    if (hello.protocol_version() != kProtocolVersion) {
      return absl::FailedPreconditionError(
          "protocol version " + std::to_string(hello.protocol_version()) + " is not spoken here, " +
          std::to_string(kProtocolVersion) + " is");
    }
    const Epoch router = proto::Get(hello.router_epoch());
    if (router.IsZero()) return absl::InvalidArgumentError("router_epoch must not be zero");
    const auto older = owner_.open_.find(router);
    if (older != owner_.open_.end()) {
      owner_.End(*older->second, absl::AbortedError("the router opened another session"),
                 v1::CAUSE_PEER_LOST);
    }
    Open(router, hello.session_number());
    return absl::OkStatus();
  }

  void Open(const Epoch& router, uint64_t number) {
    router_ = router;
    number_ = number;
    owner_.open_[router] = this;
    owner_.sessions_gauge_.Set(static_cast<double>(owner_.open_.size()));
    v1::WorkerHello& hello = *outgoing_.add_events()->mutable_hello();
    hello = owner_.host_.Hello();
    hello.set_session_number(number);
    Send(owner_.host_.Load(), true);
  }

  absl::Status TakeAttempt(const state::v1::AttemptId& message, bool attach) {
    const AttemptId attempt = proto::Get(message);
    if (attempt.router != *router_) {
      return absl::InvalidArgumentError("attempt " + attempt.ToString() +
                                        " belongs to another router");
    }
    if (attach) {
      owner_.host_.OnAttach(attempt);
    } else {
      owner_.host_.OnCancel(attempt);
    }
    return absl::OkStatus();
  }

  void OnSilence() {
    owner_.leases_expired_.Increment();
    owner_.End(*this, absl::DeadlineExceededError("the router fell silent"),
               v1::CAUSE_LEASE_EXPIRED);
  }

  RouterSessions& owner_;
  const uint64_t key_;
  std::optional<Epoch> router_;  // since its hello
  uint64_t number_ = 0;
  uint64_t last_submit_ = 0;
  v1::SessionResponse outgoing_;
  size_t outgoing_bytes_ = 0;  // of events since the last message
  v1::WorkerLoad last_load_;
  std::optional<uint64_t> next_cache_event_;  // absent: it never asked for a page
  SilenceWatch silence_;
  std::unique_ptr<RouterStream> stream_;  // first to go: it ends the calls to this listener
};

RouterSessions::RouterSessions(const Options& options, Executor& executor, MetricsRegistry& metrics,
                               Host& host)
    : options_(options),
      executor_(executor),
      host_(host),
      sessions_gauge_(
          metrics.AddGauge("baton_worker_router_sessions", "Routers with an open session.").Get()),
      leases_expired_(metrics
                          .AddCounter("baton_leases_expired_total",
                                      "Peers whose session ended because they fell silent.")
                          .Get()) {}

RouterSessions::~RouterSessions() = default;

RouterStream::Listener* RouterSessions::Accept(std::unique_ptr<RouterStream> stream) {
  const uint64_t key = next_session_++;
  auto session = std::make_unique<Session>(*this, key, std::move(stream));
  RouterStream::Listener* const listener = session.get();
  sessions_[key] = std::move(session);
  if (sessions_.size() == 1) Beat();
  return listener;
}

bool RouterSessions::IsOpen(const Epoch& router, uint64_t session_number) const {
  const auto found = open_.find(router);
  return found != open_.end() && found->second->number() == session_number;
}

void RouterSessions::NoteSubmit(const Epoch& router, uint64_t submit_number) {
  const auto found = open_.find(router);
  if (found == open_.end()) return;
  found->second->NoteSubmit(submit_number);
  Touch();
}

void RouterSessions::Emit(const Epoch& router, v1::WorkerEvent event) {
  const auto found = open_.find(router);
  if (found == open_.end()) return;
  found->second->Emit(std::move(event));
  Touch();
}

void RouterSessions::NoteCacheEvents() {
  if (cache_events_pending_ || open_.empty()) return;
  cache_events_pending_ = true;
  cache_events_ = executor_.PostAfter(kCacheEventDelay, [this] {
    cache_events_pending_ = false;
    for (const auto& [router, session] : open_) session->EmitCacheEvents();
    Touch();
  });
}

void RouterSessions::Touch() {
  if (flush_pending_) return;
  flush_pending_ = true;
  flush_ = executor_.PostAt(executor_.Now(), [this] { Flush(); });
}

void RouterSessions::Flush() {
  flush_pending_ = false;
  flush_.Cancel();
  const v1::WorkerLoad load = host_.Load();  // also without a session: it moves the gauges
  for (const auto& [router, session] : open_) session->Send(load, false);
}

void RouterSessions::Beat() {
  beat_ = executor_.PostAfter(options_.heartbeat, [this] {
    if (sessions_.empty()) return;
    const v1::WorkerLoad load = host_.Load();
    for (const auto& [router, session] : open_) session->Send(load, true);
    Beat();
  });
}

void RouterSessions::End(Session& session, const absl::Status& status, v1::Cause cause) {
  session.stream().Close(status);
  const auto node = sessions_.extract(session.key());  // dies at the end of this function
  if (!session.is_open()) return;
  const Epoch router = session.router();
  open_.erase(router);
  sessions_gauge_.Set(static_cast<double>(open_.size()));
  host_.OnRouterLost(router, cause);
}

}  // namespace baton::worker
