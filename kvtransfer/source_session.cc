#include "kvtransfer/source_session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kv/sliding_windows.h"
#include "kvtransfer/session_status.h"
#include "kvtransfer/transfer_metrics.h"
#include "proto/mapping/ids.h"

namespace baton::kvtransfer {
namespace {

constexpr int kMaxAddresses = 16;

}  // namespace

SourceSession::SourceSession(TransferSource& source, SinkAddress sink)
    : source_(source), sink_(std::move(sink)), heartbeat_(source.options_.heartbeat) {}

SourceSession::~SourceSession() = default;

void SourceSession::Start() {
  stream_ = source_.dialer_.Dial(sink_.address, *this);
  transfer::v1::SessionRequest message;
  transfer::v1::SourceHello& hello = *message.mutable_hello();
  proto::Set(source_.options_.epoch, *hello.mutable_source_epoch());
  proto::Set(sink_.epoch, *hello.mutable_sink_epoch());
  hello.set_protocol_version(kProtocolVersion);
  proto::Set(source_.options_.layout_fp, *hello.mutable_layout_fp());
  proto::Set(source_.options_.numerics_id, *hello.mutable_numerics_id());
  const Cores& cores = source_.options_.cores;
  hello.mutable_cores()->set_machine(cores.machine);
  hello.mutable_cores()->mutable_cpus()->Assign(cores.cpus.begin(), cores.cpus.end());
  hello.mutable_cores()->set_threads(cores.threads);
  stream_->Send(std::move(message));
  silence_.emplace(source_.executor_, source_.options_.lease, [this] {
    if (source_.metrics_ != nullptr) source_.metrics_->leases_expired.Increment();
    End(worker::v1::CAUSE_LEASE_EXPIRED, LeaseExpired());
  });
}

// --- What the host asks.

void SourceSession::Reserve(SourceAttempt& attempt) {
  if (open_) SendReserve(attempt);
}

void SourceSession::Ship(SourceAttempt& attempt, const BlockRun& run) {
  Note(attempt, SourceEvent::kShip);
  if (attempt.state == SourceState::kEnding) return;
  BATON_CHECK(attempt.state == SourceState::kGranted);
  if (data_ == nullptr) return;  // lost just now: OnEnded is on its way
  const kv::KvLayout& layout = source_.options_.layout;
  BATON_CHECK(run.layer < layout.layers.size());
  const uint32_t first = attempt.first_needed[layout.layers[run.layer].group];
  const uint32_t skip = first > run.first_ordinal ? first - run.first_ordinal : 0;
  attempt.last_ship = source_.executor_.Now();
  if (skip >= run.blocks.size()) return;
  const BlockRun needed{
      run.layer, run.first_ordinal + skip, {run.blocks.begin() + skip, run.blocks.end()}};
  for (uint32_t arena = 0; arena < layout.layers[run.layer].arenas.size(); ++arena) {
    attempt.end.bytes += needed.blocks.size() * layout.PieceBytes(run.layer, arena);
  }
  data_->Send(attempt.id, needed);
}

void SourceSession::Commit(SourceAttempt& attempt, CommitMessage message) {
  Note(attempt, SourceEvent::kCommit);
  if (attempt.state == SourceState::kEnding) return;
  BATON_CHECK(attempt.state == SourceState::kGranted);
  if (data_ == nullptr) return;  // lost just now: OnEnded is on its way
  attempt.state = SourceState::kCommitting;
  attempt.commit_called = source_.executor_.Now();
  attempt.backlog_at_commit = data_->Backlog(attempt.id);
  data_->Commit(attempt.id, std::move(message));
  WatchCommit(attempt, attempt.backlog_at_commit);
}

void SourceSession::Release(SourceAttempt& attempt, Cause why) {
  constexpr Cause kCause = worker::v1::CAUSE_RELEASED;
  Note(attempt, SourceEvent::kRelease);
  if (attempt.state == SourceState::kEnding) return;
  if (attempt.state != SourceState::kConnecting) SendRelease(attempt, why);
  const bool data_open =
      attempt.state == SourceState::kGranted || attempt.state == SourceState::kCommitting;
  if (data_open && data_ != nullptr) {
    return StartEnding(attempt, Outcome::kReleased, kCause);
  }
  attempt.state = SourceState::kEnding;
  attempt.end.outcome = Outcome::kReleased;
  attempt.end.cause = kCause;
  source_.FinishLater(attempt);
}

// --- What the sink says on the session.

void SourceSession::OnMessage(transfer::v1::SessionResponse message) {
  if (ended_) return;
  silence_->Heard();
  using Kind = transfer::v1::SessionResponse;
  if (!open_ && message.message_case() != Kind::kHello) return BadPeer("no hello");
  switch (message.message_case()) {
    case Kind::kHello:
      return OnHello(message.hello());
    case Kind::kHeartbeat:
      return;
    case Kind::kGranted:
      return OnGranted(Find(proto::Get(message.granted().attempt())), message.granted());
    case Kind::kWait:
      return OnWait(Find(proto::Get(message.wait().attempt())));
    case Kind::kRefused:
      return OnRefused(Find(proto::Get(message.refused().attempt())),
                       CauseFromPeer(message.refused().cause()));
    case Kind::kRevoked:
      return OnRevoked(Find(proto::Get(message.revoked().attempt())),
                       CauseFromPeer(message.revoked().cause()));
    case Kind::MESSAGE_NOT_SET:
      return;  // a message of a later version
  }
}

void SourceSession::OnHello(const transfer::v1::SinkHello& hello) {
  if (open_) return BadPeer("second hello");
  if (proto::Get(hello.sink_epoch()) != sink_.epoch) {
    return End(worker::v1::CAUSE_STALE_EPOCH, StaleEpoch());
  }
  if (hello.protocol_version() != kProtocolVersion || hello.lease_ms() == 0 ||
      hello.data_addresses_size() > kMaxAddresses) {
    return BadPeer("hello");
  }
  open_ = true;
  addresses_.assign(hello.data_addresses().begin(), hello.data_addresses().end());
  heartbeat_ = std::min<Duration>(heartbeat_, std::chrono::milliseconds(hello.lease_ms()) / 4);
  Heartbeat();
  ConnectData();
  for (SourceAttempt* attempt : Attempts()) {
    Note(*attempt, SourceEvent::kSessionOpen);
    if (attempt->state == SourceState::kConnecting) SendReserve(*attempt);
  }
}

bool SourceSession::AcceptGrant(SourceAttempt& attempt,
                                const transfer::v1::Granted& granted) const {
  const kv::KvLayout& layout = source_.options_.layout;
  const uint32_t tokens = static_cast<uint32_t>(attempt.reserve.prompt_size());
  const uint32_t blocks = (tokens + layout.block_size - 1) / layout.block_size;
  const auto& first = granted.first_needed_block();
  if (first.size() != static_cast<int>(layout.groups.size())) return false;
  const kv::SlidingWindows windows(layout, 1);
  for (kv::GroupId g = 0; g < layout.groups.size(); ++g) {
    const uint32_t needed = first[static_cast<int>(g)];
    // What no token after the prompt sees is not there any more.
    if (needed > blocks || needed < windows.FirstSeen(g, tokens)) return false;
  }
  attempt.first_needed.assign(first.begin(), first.end());
  attempt.secret = granted.secret();
  return true;
}

void SourceSession::OnGranted(SourceAttempt* attempt, const transfer::v1::Granted& granted) {
  if (attempt == nullptr) return;
  Note(*attempt, SourceEvent::kGrantedMessage);
  if (attempt->state == SourceState::kEnding) return;
  const bool expected =
      attempt->state == SourceState::kReserving || attempt->state == SourceState::kWaiting;
  if (!expected || !AcceptGrant(*attempt, granted)) return BadPeer("grant");
  attempt->state = SourceState::kOpening;
  attempt->counted = true;
  if (source_.metrics_ != nullptr) source_.metrics_->in_flight.Add(1);
  if (data_connected_) return Granted(*attempt);
  if (data_ == nullptr) ConnectData();
}

void SourceSession::OnWait(SourceAttempt* attempt) {
  if (attempt == nullptr) return;
  Note(*attempt, SourceEvent::kWaitMessage);
  if (attempt->state == SourceState::kEnding) return;
  if (attempt->state != SourceState::kReserving) return BadPeer("wait");
  attempt->state = SourceState::kWaiting;
  source_.host_.OnWaiting(attempt->id);
}

void SourceSession::OnRefused(SourceAttempt* attempt, Cause cause) {
  if (attempt == nullptr) return;
  Note(*attempt, SourceEvent::kRefusedMessage);
  if (attempt->state == SourceState::kEnding) return;
  if (attempt->state != SourceState::kReserving && attempt->state != SourceState::kWaiting) {
    return BadPeer("refusal");
  }
  Conclude(*attempt, Outcome::kNotGranted, cause);
}

void SourceSession::OnRevoked(SourceAttempt* attempt, Cause cause) {
  if (attempt == nullptr) return;
  Note(*attempt, SourceEvent::kRevokedMessage);
  if (attempt->state == SourceState::kEnding) return;
  switch (attempt->state) {
    case SourceState::kOpening:
      return Conclude(*attempt, Outcome::kRevoked, cause);
    case SourceState::kGranted:
    case SourceState::kCommitting:
      return StartEnding(*attempt, Outcome::kRevoked, cause);
    default:
      return BadPeer("revocation");
  }
}

void SourceSession::OnClosed(absl::Status status) {
  if (!ended_) End(CauseOf(status), absl::CancelledError());
}

// --- The data connection.

void SourceSession::ConnectData() {
  while (data_ == nullptr && next_address_ < addresses_.size()) {
    const std::string& address = addresses_[next_address_++];
    const std::string scheme = address.substr(0, address.find(':'));
    for (Transport* transport : source_.transports_) {
      if (transport->scheme() != scheme) continue;
      data_ = transport->Connect({address, source_.options_.epoch, sink_.epoch}, *this);
      break;
    }
  }
  if (data_ == nullptr) DropData();
}

void SourceSession::WatchCommit(SourceAttempt& attempt, uint64_t backlog) {
  const auto on_silent = [this, &attempt, backlog] {
    if (data_ == nullptr) return;  // lost just now: OnEnded is on its way
    const uint64_t left = data_->Backlog(attempt.id);
    if (left < backlog) return WatchCommit(attempt, left);
    DropData();
  };
  attempt.commit_watch.emplace(source_.executor_, source_.options_.lease, on_silent);
}

void SourceSession::OnConnected() {
  data_connected_ = true;
  for (SourceAttempt* attempt : Attempts()) {
    Note(*attempt, SourceEvent::kDataConnected);
    if (attempt->state == SourceState::kOpening) Granted(*attempt);
  }
}

void SourceSession::OnEnded(absl::Status) {
  data_.reset();
  // One that was never up: the sink may have another address.
  if (!data_connected_) return ConnectData();
  DropData();
}

// There is no data connection; the next grant tries the addresses from the first again.
void SourceSession::DropData() {
  data_.reset();
  data_connected_ = false;
  next_address_ = 0;
  for (SourceAttempt* attempt : Attempts()) {
    Note(*attempt, SourceEvent::kDataEnded);
    switch (attempt->state) {
      case SourceState::kOpening:
      case SourceState::kGranted:
      case SourceState::kCommitting:
        SendRelease(*attempt, worker::v1::CAUSE_PEER_LOST);
        Conclude(*attempt, Outcome::kPeerLost, worker::v1::CAUSE_PEER_LOST);
        break;
      case SourceState::kEnding:
        source_.Finish(*attempt);
        break;
      default:
        break;
    }
  }
}

void SourceSession::OnCommitReply(const AttemptId& id, Cause cause) {
  SourceAttempt* const attempt = Find(id);
  if (attempt == nullptr) return;
  const bool committed = cause == worker::v1::CAUSE_UNSPECIFIED;
  Note(*attempt, committed ? SourceEvent::kCommitted : SourceEvent::kCommitRefused);
  if (attempt->state == SourceState::kEnding) return;
  if (attempt->state != SourceState::kCommitting) return BadPeer("commit reply");
  if (committed) {
    attempt->end.handoff = source_.executor_.Now() - attempt->last_ship;
    source_.OnCommitted(*attempt);
  }
  StartEnding(*attempt, committed ? Outcome::kCommitted : Outcome::kRefused, cause);
}

void SourceSession::OnTransferClosed(const AttemptId& id) {
  SourceAttempt* const attempt = Find(id);
  if (attempt == nullptr) return;
  Note(*attempt, SourceEvent::kTransferClosed);
  if (attempt->state == SourceState::kEnding) source_.Finish(*attempt);
}

// --- Inner workings.

void SourceSession::Note(const SourceAttempt& attempt, SourceEvent event) const {
  if (source_.options_.on_event) source_.options_.on_event(attempt.state, event);
}

SourceAttempt* SourceSession::Find(const AttemptId& id) {
  SourceAttempt* const attempt = source_.Find(id);
  return attempt != nullptr && attempt->session == this ? attempt : nullptr;
}

std::vector<SourceAttempt*> SourceSession::Attempts() {
  std::vector<SourceAttempt*> mine;
  for (auto& entry : source_.attempts_) {
    if (entry.second->session == this) mine.push_back(entry.second.get());
  }
  return mine;
}

void SourceSession::SendReserve(SourceAttempt& attempt) {
  attempt.state = SourceState::kReserving;
  transfer::v1::SessionRequest message;
  *message.mutable_reserve() = attempt.reserve;
  stream_->Send(std::move(message));
}

void SourceSession::SendRelease(const SourceAttempt& attempt, Cause cause) {
  transfer::v1::SessionRequest message;
  proto::Set(attempt.id, *message.mutable_release()->mutable_attempt());
  message.mutable_release()->set_cause(cause);
  stream_->Send(std::move(message));
}

void SourceSession::Granted(SourceAttempt& attempt) {
  attempt.state = SourceState::kGranted;
  data_->Open(attempt.id, attempt.secret);
  source_.host_.OnGranted(attempt.id, attempt.first_needed);
}

void SourceSession::StartEnding(SourceAttempt& attempt, Outcome outcome, Cause cause) {
  attempt.state = SourceState::kEnding;
  attempt.commit_watch.reset();
  attempt.end.outcome = outcome;
  attempt.end.cause = cause;
  data_->Close(attempt.id);
}

void SourceSession::Conclude(SourceAttempt& attempt, Outcome outcome, Cause cause) {
  attempt.end.outcome = outcome;
  attempt.end.cause = cause;
  source_.Finish(attempt);
}

void SourceSession::BadPeer(std::string_view what) {
  End(worker::v1::CAUSE_MALFORMED,
      absl::InvalidArgumentError("out of order or malformed: " + std::string(what)));
}

void SourceSession::End(Cause cause, absl::Status tell_sink) {
  ended_ = true;
  heartbeat_timer_.Cancel();
  silence_.reset();
  data_.reset();  // no block is read any more
  stream_->Close(std::move(tell_sink));
  const std::vector<SourceAttempt*> attempts = Attempts();
  source_.Forget(*this);  // a Reserve from within OnEnded opens a new session
  for (SourceAttempt* attempt : attempts) {
    Note(*attempt, SourceEvent::kSessionEnded);
    if (attempt->state == SourceState::kEnding) {
      source_.Finish(*attempt);
    } else {
      Conclude(*attempt, Outcome::kPeerLost, cause);
    }
  }
}

void SourceSession::Heartbeat() {
  transfer::v1::SessionRequest message;
  message.mutable_heartbeat();
  stream_->Send(std::move(message));
  heartbeat_timer_ = source_.executor_.PostAfter(heartbeat_, [this] { Heartbeat(); });
}

}  // namespace baton::kvtransfer
