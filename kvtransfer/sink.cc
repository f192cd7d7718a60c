#include "kvtransfer/sink.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "common/check.h"
#include "common/hash.h"
#include "common/random.h"
#include "kvtransfer/session_status.h"
#include "kvtransfer/sink_session.h"
#include "kvtransfer/transfer_metrics.h"
#include "proto/mapping/ids.h"
#include "proto/mapping/spans.h"

namespace baton::kvtransfer {
namespace {

// Everything that a peer may have set to anything.
bool Sane(const TransferSink::Options& options, const transfer::v1::Reserve& reserve) {
  const auto& prompt = reserve.prompt();
  if (prompt.empty() || static_cast<uint32_t>(prompt.size()) >= options.context_length) {
    return false;
  }
  const auto in_vocabulary = [&](int32_t token) {
    return token >= 0 && static_cast<uint32_t>(token) < options.vocab_size;
  };
  return std::all_of(prompt.begin(), prompt.end(), in_vocabulary) && reserve.n() >= 1 &&
         reserve.n() <= kMaxChoices && reserve.max_tokens() >= 1 &&
         reserve.max_tokens() <= options.context_length &&
         reserve.cache_namespace().size() <= kMaxNamespaceBytes &&
         proto::AgeFromPeer(reserve.age_ns()).has_value();
}

Reservation FromMessage(const transfer::v1::Reserve& reserve) {
  Reservation reservation;
  reservation.prompt.assign(reserve.prompt().begin(), reserve.prompt().end());
  reservation.cache_namespace = reserve.cache_namespace();
  reservation.n = reserve.n();
  reservation.max_tokens = reserve.max_tokens();
  reservation.age = *proto::AgeFromPeer(reserve.age_ns());
  if (reserve.has_remaining_ns()) {
    reservation.remaining = proto::RemainingFromPeer(reserve.remaining_ns());
  }
  return reservation;
}

}  // namespace

TransferSink::TransferSink(Options options, Executor& executor, ReceiveTable& table,
                           Tombstones& tombstones, Random& random, Host& host,
                           TransferMetrics* metrics)
    : options_(std::move(options)),
      executor_(executor),
      table_(table),
      tombstones_(tombstones),
      random_(random),
      host_(host),
      metrics_(metrics) {
  table_.SetListener(this);
}

TransferSink::~TransferSink() { table_.SetListener(nullptr); }

void TransferSink::Accept(
    const std::function<std::unique_ptr<SinkStream>(SinkStream::Listener& listener)>& start) {
  const uint64_t number = ++next_session_;
  auto session = std::make_unique<SinkSession>(*this, number);
  SinkSession& added = *session;
  sessions_.emplace(number, std::move(session));
  added.Start(start);
}

SinkAttempt* TransferSink::Find(const AttemptId& id) {
  const auto it = attempts_.find(id);
  return it == attempts_.end() ? nullptr : it->second.get();
}

void TransferSink::Note(const SinkAttempt* attempt, SinkEvent event) const {
  if (!options_.on_event) return;
  options_.on_event(attempt == nullptr ? std::nullopt : std::optional(attempt->state), event);
}

std::optional<SinkState> TransferSink::state(const AttemptId& id) const {
  const auto it = attempts_.find(id);
  if (it == attempts_.end()) return std::nullopt;
  return it->second->state;
}

uint32_t TransferSink::ChoicesComputedHere() const {
  uint32_t choices = 0;
  for (const auto& [id, attempt] : attempts_) {
    if (attempt->state != SinkState::kGranted) continue;
    if (attempt->session->contends()) choices += attempt->choices;
  }
  return choices;
}

// --- What sources say.

void TransferSink::OnReserve(SinkSession& session, const transfer::v1::Reserve& reserve) {
  const AttemptId id = proto::Get(reserve.attempt());
  const SinkAttempt* const known = Find(id);
  Note(known, SinkEvent::kReserve);
  if (known != nullptr && known->session == &session && known->state != SinkState::kQuiescing) {
    return session.End(worker::v1::CAUSE_MALFORMED,
                       absl::InvalidArgumentError("Reserve of a live attempt"));
  }
  if (known != nullptr || tombstones_.Contains(id)) {
    return session.SendRefused(id, worker::v1::CAUSE_TOMBSTONE);
  }
  if (proto::Get(reserve.layout_fp()) != options_.layout_fp ||
      proto::Get(reserve.numerics_id()) != options_.numerics_id) {
    return session.SendRefused(id, worker::v1::CAUSE_FINGERPRINT_MISMATCH);
  }
  if (id.router.IsZero() || !Sane(options_, reserve)) {
    return session.SendRefused(id, worker::v1::CAUSE_MALFORMED);
  }
  Reservation reservation = FromMessage(reserve);
  auto attempt = std::make_unique<SinkAttempt>();
  attempt->id = id;
  attempt->session = &session;
  attempt->chain_hash = TokenChainHash(reservation.prompt);
  attempt->prompt_tokens = static_cast<uint32_t>(reservation.prompt.size());
  attempt->choices = reservation.n;
  attempts_.emplace(id, std::move(attempt));
  host_.OnReserve(id, std::move(reservation));
}

void TransferSink::OnRelease(SinkSession& session, const AttemptId& id, Cause cause) {
  SinkAttempt* const attempt = Find(id);
  Note(attempt, SinkEvent::kRelease);
  if (attempt == nullptr) {
    if (!session.Committed(id)) tombstones_.Add(id);
    return;
  }
  if (attempt->session != &session) return;  // not its to release
  End(*attempt, cause, /*tell_host=*/true, /*tell_source=*/false);
}

void TransferSink::ReplaceOlder(SinkSession& session) {
  for (const auto& entry : sessions_) {
    SinkSession& other = *entry.second;
    if (&other == &session || !other.greeted() || other.source() != session.source()) continue;
    // Its source has opened another one, so it is dead whatever the transport thinks.
    return other.End(worker::v1::CAUSE_PEER_LOST, absl::AbortedError("replaced by a new session"));
  }
}

void TransferSink::Forget(SinkSession& session, Cause cause) {
  std::vector<AttemptId> mine;
  for (const auto& entry : attempts_) {
    if (entry.second->session == &session) mine.push_back(entry.first);
  }
  if (session.greeted()) table_.RemoveSource(session.source());
  const auto it = sessions_.find(session.number());
  BATON_CHECK(it != sessions_.end());
  // It is inside one of its own functions now.
  executor_.Post([keep = std::shared_ptr<SinkSession>(std::move(it->second))] {});
  sessions_.erase(it);
  for (const AttemptId& id : mine) {
    SinkAttempt* const attempt = Find(id);
    if (attempt == nullptr) continue;  // the host dropped it when it heard of another
    Note(attempt, SinkEvent::kSessionEnded);
    if (attempt->state == SinkState::kQuiescing) {
      attempt->session = nullptr;
      continue;
    }
    End(*attempt, cause, /*tell_host=*/true, /*tell_source=*/false);
  }
}

// --- What the host says.

void TransferSink::Grant(const AttemptId& id, std::vector<GroupGrant> groups) {
  SinkAttempt* const attempt = Find(id);
  BATON_CHECK(attempt != nullptr);
  Note(attempt, SinkEvent::kHostGrant);
  BATON_CHECK(attempt->state == SinkState::kAsked || attempt->state == SinkState::kWaiting);
  BATON_CHECK(groups.size() == options_.num_groups);
  attempt->state = SinkState::kGranted;
  const uint32_t prompt_blocks =
      (attempt->prompt_tokens + options_.block_size - 1) / options_.block_size;
  std::vector<uint32_t> first_needed;
  std::vector<GrantedGroup> granted;
  for (GroupGrant& group : groups) {
    first_needed.push_back(group.first_needed);
    granted.push_back({group.first_needed, prompt_blocks, std::move(group.blocks)});
  }
  const uint64_t secret = random_.Next64();
  table_.Expect(id, attempt->session->source(), secret, std::move(granted));
  if (metrics_ != nullptr) metrics_->in_flight.Add(1);
  attempt->session->SendGranted(*attempt, first_needed, secret);
}

void TransferSink::Wait(const AttemptId& id) {
  SinkAttempt* const attempt = Find(id);
  BATON_CHECK(attempt != nullptr);
  Note(attempt, SinkEvent::kHostWait);
  BATON_CHECK(attempt->state == SinkState::kAsked);
  attempt->state = SinkState::kWaiting;
  attempt->session->SendWait(id);
}

void TransferSink::Refuse(const AttemptId& id, Cause cause) {
  SinkAttempt* const attempt = Find(id);
  BATON_CHECK(attempt != nullptr);
  Note(attempt, SinkEvent::kHostRefuse);
  BATON_CHECK(attempt->state == SinkState::kAsked || attempt->state == SinkState::kWaiting);
  attempt->session->SendRefused(id, cause);
  attempts_.erase(id);
}

void TransferSink::Drop(const AttemptId& id, Cause cause) {
  SinkAttempt* const attempt = Find(id);
  Note(attempt, SinkEvent::kHostDrop);
  if (attempt == nullptr) return tombstones_.Add(id);
  End(*attempt, cause, /*tell_host=*/false, /*tell_source=*/true);
}

void TransferSink::End(SinkAttempt& attempt, Cause cause, bool tell_host, bool tell_source) {
  if (attempt.state == SinkState::kQuiescing) return;
  const AttemptId id = attempt.id;
  tombstones_.Add(id);
  if (attempt.state == SinkState::kGranted) {
    table_.Drop(id, cause);
    attempt.state = SinkState::kQuiescing;
    if (tell_source) attempt.session->SendRevoked(id, cause);
    if (metrics_ != nullptr) {
      metrics_->in_flight.Add(-1);
      if (cause != worker::v1::CAUSE_RELEASED) {
        metrics_->failures.With({std::string(CauseLabel(cause))}).Increment();
      }
    }
    // A session that ended is gone before the transfer is quiet.
    if (!tell_source) attempt.session = nullptr;
  } else {
    if (tell_source) attempt.session->SendRefused(id, cause);
    attempts_.erase(id);
  }
  if (tell_host) host_.OnDropped(id, cause);
}

// --- What the data connections say.

void TransferSink::OnFirstPiece(const AttemptId& id) {
  const SinkAttempt* const attempt = Find(id);
  if (attempt == nullptr || attempt->state != SinkState::kGranted) return;
  if (metrics_ != nullptr) metrics_->first_pieces.Increment();
  host_.OnFirstPiece(id);
}

void TransferSink::OnCommitArrived(const AttemptId& id, Cause problem, CommitMessage message) {
  SinkAttempt* const attempt = Find(id);
  if (attempt == nullptr || attempt->state != SinkState::kGranted) {  // was dropped
    const bool whole = problem == worker::v1::CAUSE_UNSPECIFIED;
    return Note(attempt, whole ? SinkEvent::kGoodCommit : SinkEvent::kBadCommit);
  }
  Cause cause = problem;
  if (cause == worker::v1::CAUSE_UNSPECIFIED && message.chain_hash != attempt->chain_hash) {
    cause = worker::v1::CAUSE_CHECKSUM_MISMATCH;
  }
  if (cause != worker::v1::CAUSE_UNSPECIFIED) {
    // The commit reply carries the refusal.
    Note(attempt, SinkEvent::kBadCommit);
    return End(*attempt, cause, /*tell_host=*/true, /*tell_source=*/false);
  }
  cause = host_.OnCommit(id, std::move(message.decoder_state));
  const bool good = cause == worker::v1::CAUSE_UNSPECIFIED;
  Note(attempt, good ? SinkEvent::kGoodCommit : SinkEvent::kBadCommit);
  if (!good) {
    return End(*attempt, cause, /*tell_host=*/false, /*tell_source=*/false);
  }
  table_.Accept(id);
  attempt->session->RememberCommitted(id);
  attempts_.erase(id);
  if (metrics_ != nullptr) metrics_->in_flight.Add(-1);
}

void TransferSink::OnTransferFailed(const AttemptId& id, Cause cause) {
  SinkAttempt* const attempt = Find(id);
  // Nothing orders the two connections: only the Release says why.
  if (cause == worker::v1::CAUSE_RELEASED) return Note(attempt, SinkEvent::kTransferClosed);
  Note(attempt, cause == worker::v1::CAUSE_CHECKSUM_MISMATCH ? SinkEvent::kTransferFailed
                                                             : SinkEvent::kDataEnded);
  if (attempt == nullptr || attempt->state != SinkState::kGranted) return;
  End(*attempt, cause, /*tell_host=*/true, /*tell_source=*/true);
}

void TransferSink::OnQuiesced(const AttemptId& id) {
  const auto it = attempts_.find(id);
  BATON_CHECK(it != attempts_.end());
  Note(it->second.get(), SinkEvent::kQuiesced);
  BATON_CHECK(it->second->state == SinkState::kQuiescing);
  attempts_.erase(it);
  host_.OnQuiesced(id);
}

}  // namespace baton::kvtransfer
