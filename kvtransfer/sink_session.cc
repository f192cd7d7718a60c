#include "kvtransfer/sink_session.h"

#include <algorithm>
#include <utility>

#include "common/cores.h"
#include "common/cpu_list.h"
#include "kvtransfer/session_status.h"
#include "kvtransfer/transfer_metrics.h"
#include "proto/mapping/ids.h"

namespace baton::kvtransfer {
namespace {

// Unknown ones when no machine has so many.
Cores CoresFromPeer(const transfer::v1::Cores& cores) {
  if (cores.cpus_size() > static_cast<int>(kMaxCpus)) return {};
  return {cores.machine(), {cores.cpus().begin(), cores.cpus().end()}, cores.threads()};
}

}  // namespace

SinkSession::SinkSession(TransferSink& sink, uint64_t number) : sink_(sink), number_(number) {}

SinkSession::~SinkSession() = default;

void SinkSession::Start(
    const std::function<std::unique_ptr<SinkStream>(SinkStream::Listener&)>& start) {
  stream_ = start(*this);
  silence_.emplace(sink_.executor_, sink_.options_.lease, [this] {
    if (sink_.metrics_ != nullptr) sink_.metrics_->leases_expired.Increment();
    End(worker::v1::CAUSE_LEASE_EXPIRED, LeaseExpired());
  });
}

void SinkSession::OnMessage(transfer::v1::SessionRequest message) {
  if (ended_) return;
  silence_->Heard();
  using Kind = transfer::v1::SessionRequest;
  if (greeted_ == (message.message_case() == Kind::kHello)) {
    return End(worker::v1::CAUSE_MALFORMED, absl::InvalidArgumentError("hello out of order"));
  }
  switch (message.message_case()) {
    case Kind::kHello:
      return OnHello(message.hello());
    case Kind::kReserve:
      return sink_.OnReserve(*this, message.reserve());
    case Kind::kRelease:
      return sink_.OnRelease(*this, proto::Get(message.release().attempt()),
                             message.release().cause() == worker::v1::CAUSE_UNSPECIFIED
                                 ? worker::v1::CAUSE_RELEASED
                                 : CauseFromPeer(message.release().cause()));
    case Kind::kHeartbeat:
    case Kind::MESSAGE_NOT_SET:  // a message of a later version
      return;
  }
}

void SinkSession::OnHello(const transfer::v1::SourceHello& hello) {
  const TransferSink::Options& options = sink_.options_;
  if (proto::Get(hello.sink_epoch()) != options.epoch) {
    return End(worker::v1::CAUSE_STALE_EPOCH, StaleEpoch());
  }
  const Epoch source = proto::Get(hello.source_epoch());
  if (hello.protocol_version() != kProtocolVersion || source.IsZero()) {
    return End(worker::v1::CAUSE_MALFORMED, absl::FailedPreconditionError("protocol version"));
  }
  if (proto::Get(hello.layout_fp()) != options.layout_fp ||
      proto::Get(hello.numerics_id()) != options.numerics_id) {
    return End(worker::v1::CAUSE_FINGERPRINT_MISMATCH, FingerprintMismatch());
  }
  contends_ = Contend(options.cores, CoresFromPeer(hello.cores()));
  source_ = source;
  greeted_ = true;
  sink_.ReplaceOlder(*this);
  sink_.table_.AddSource(source_);
  transfer::v1::SessionResponse message;
  transfer::v1::SinkHello& answer = *message.mutable_hello();
  proto::Set(options.epoch, *answer.mutable_sink_epoch());
  answer.set_protocol_version(kProtocolVersion);
  for (const std::string& address : options.data_addresses) answer.add_data_addresses(address);
  answer.set_lease_ms(static_cast<uint32_t>(options.lease / std::chrono::milliseconds(1)));
  stream_->Send(std::move(message));
  Heartbeat();
}

void SinkSession::SendGranted(const SinkAttempt& attempt, const std::vector<uint32_t>& first_needed,
                              uint64_t secret) {
  transfer::v1::SessionResponse message;
  transfer::v1::Granted& granted = *message.mutable_granted();
  proto::Set(attempt.id, *granted.mutable_attempt());
  granted.mutable_first_needed_block()->Assign(first_needed.begin(), first_needed.end());
  granted.set_secret(secret);
  stream_->Send(std::move(message));
}

void SinkSession::SendWait(const AttemptId& attempt) {
  transfer::v1::SessionResponse message;
  proto::Set(attempt, *message.mutable_wait()->mutable_attempt());
  stream_->Send(std::move(message));
}

void SinkSession::SendRefused(const AttemptId& attempt, Cause cause) {
  transfer::v1::SessionResponse message;
  proto::Set(attempt, *message.mutable_refused()->mutable_attempt());
  message.mutable_refused()->set_cause(cause);
  stream_->Send(std::move(message));
}

void SinkSession::SendRevoked(const AttemptId& attempt, Cause cause) {
  transfer::v1::SessionResponse message;
  proto::Set(attempt, *message.mutable_revoked()->mutable_attempt());
  message.mutable_revoked()->set_cause(cause);
  stream_->Send(std::move(message));
}

void SinkSession::RememberCommitted(const AttemptId& attempt) {
  const Time now = sink_.executor_.Now();
  const Time old = now - 2 * sink_.options_.lease;
  for (auto it = committed_.begin(); it != committed_.end();) {
    it = it->second < old ? committed_.erase(it) : std::next(it);
  }
  committed_[attempt] = now;
}

void SinkSession::OnClosed(absl::Status) {
  if (!ended_) End(worker::v1::CAUSE_PEER_LOST, absl::CancelledError());
}

void SinkSession::End(Cause cause, absl::Status tell_source) {
  if (std::exchange(ended_, true)) return;
  heartbeat_timer_.Cancel();
  silence_.reset();
  stream_->Close(std::move(tell_source));
  sink_.Forget(*this, cause);
}

void SinkSession::Heartbeat() {
  transfer::v1::SessionResponse message;
  message.mutable_heartbeat();
  stream_->Send(std::move(message));
  // A source is likely to have the same lease.
  const Duration interval = std::min(sink_.options_.heartbeat, sink_.options_.lease / 4);
  heartbeat_timer_ = sink_.executor_.PostAfter(interval, [this] { Heartbeat(); });
}

}  // namespace baton::kvtransfer
