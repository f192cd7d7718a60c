#include "kvtransfer/source.h"

#include <utility>

#include "common/check.h"
#include "kvtransfer/source_session.h"
#include "kvtransfer/transfer_metrics.h"
#include "proto/mapping/ids.h"

namespace baton::kvtransfer {
namespace {

// Smaller transfers measure latency, not speed.
constexpr uint64_t kMinMeasuredBytes = uint64_t{1} << 20;
constexpr double kNewWeight = 0.25;

transfer::v1::Reserve ReserveMessage(const TransferSource::Options& options,
                                     const AttemptId& attempt, const ReserveRequest& request) {
  transfer::v1::Reserve message;
  proto::Set(attempt, *message.mutable_attempt());
  message.mutable_prompt()->Assign(request.prompt.begin(), request.prompt.end());
  message.set_cache_namespace(request.cache_namespace);
  message.set_n(request.n);
  message.set_max_tokens(request.max_tokens);
  message.set_age_ns(static_cast<uint64_t>(request.age.count()));
  if (request.remaining.has_value()) message.set_remaining_ns(request.remaining->count());
  proto::Set(options.layout_fp, *message.mutable_layout_fp());
  proto::Set(options.numerics_id, *message.mutable_numerics_id());
  return message;
}

}  // namespace

TransferSource::TransferSource(Options options, Executor& executor, SinkDialer& dialer,
                               std::vector<Transport*> transports, Host& host,
                               TransferMetrics* metrics)
    : options_(std::move(options)),
      executor_(executor),
      dialer_(dialer),
      transports_(std::move(transports)),
      host_(host),
      metrics_(metrics),
      alive_(std::make_shared<bool>(true)) {}

TransferSource::~TransferSource() {
  *alive_ = false;
  sessions_.clear();
}

void TransferSource::Reserve(const AttemptId& id, const SinkAddress& sink,
                             const ReserveRequest& request) {
  auto attempt = std::make_unique<SourceAttempt>();
  SourceAttempt& added = *attempt;
  BATON_CHECK(attempts_.emplace(id, std::move(attempt)).second);
  added.id = id;
  added.serial = ++next_serial_;
  added.reserve = ReserveMessage(options_, id, request);
  SourceSession& session = SessionOf(sink);
  added.session = &session;
  session.Reserve(added);
}

SourceSession& TransferSource::SessionOf(const SinkAddress& sink) {
  std::unique_ptr<SourceSession>& session = sessions_[sink];
  if (session == nullptr) {
    session = std::make_unique<SourceSession>(*this, sink);
    session->Start();
  }
  return *session;
}

void TransferSource::Ship(const AttemptId& id, const BlockRun& run) {
  SourceAttempt* const attempt = Find(id);
  if (attempt != nullptr) attempt->session->Ship(*attempt, run);
}

void TransferSource::Commit(const AttemptId& id, CommitMessage message) {
  SourceAttempt* const attempt = Find(id);
  if (attempt != nullptr) attempt->session->Commit(*attempt, std::move(message));
}

void TransferSource::Release(const AttemptId& id, Cause why) {
  SourceAttempt* const attempt = Find(id);
  if (attempt != nullptr) attempt->session->Release(*attempt, why);
}

std::optional<SourceState> TransferSource::state(const AttemptId& id) const {
  const auto it = attempts_.find(id);
  if (it == attempts_.end()) return std::nullopt;
  return it->second->state;
}

SourceAttempt* TransferSource::Find(const AttemptId& id) {
  const auto it = attempts_.find(id);
  return it == attempts_.end() ? nullptr : it->second.get();
}

void TransferSource::OnCommitted(const SourceAttempt& attempt) {
  const double seconds = ToSeconds(executor_.Now() - attempt.commit_called);
  if (attempt.backlog_at_commit < kMinMeasuredBytes || seconds <= 0) return;
  const double measured = static_cast<double>(attempt.backlog_at_commit) / seconds;
  bytes_per_second_ = bytes_per_second_ == 0
                          ? measured
                          : bytes_per_second_ + kNewWeight * (measured - bytes_per_second_);
}

void TransferSource::CountEnd(const SourceAttempt& attempt) {
  if (metrics_ == nullptr || !attempt.counted) return;
  metrics_->in_flight.Add(-1);
  if (attempt.end.outcome == Outcome::kCommitted) {
    metrics_->handoff_seconds.Observe(ToSeconds(attempt.end.handoff));
    metrics_->handoff_bytes.Increment(static_cast<double>(attempt.end.bytes));
  } else if (attempt.end.outcome != Outcome::kReleased) {
    metrics_->failures.With({std::string(CauseLabel(attempt.end.cause))}).Increment();
  }
}

void TransferSource::Finish(SourceAttempt& attempt) {
  CountEnd(attempt);
  const AttemptId id = attempt.id;
  const TransferEnd end = attempt.end;
  attempts_.erase(id);
  host_.OnEnded(id, end);
}

void TransferSource::FinishLater(SourceAttempt& attempt) {
  executor_.Post([this, alive = alive_, id = attempt.id, serial = attempt.serial] {
    if (!*alive) return;
    SourceAttempt* const found = Find(id);
    if (found != nullptr && found->serial == serial) Finish(*found);
  });
}

void TransferSource::Forget(SourceSession& session) {
  const auto it = sessions_.find(session.sink());
  BATON_CHECK(it != sessions_.end());
  // It is inside one of its own functions now.
  executor_.Post([keep = std::shared_ptr<SourceSession>(std::move(it->second))] {});
  sessions_.erase(it);
}

}  // namespace baton::kvtransfer
