#include "worker/local_runs.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "worker/blocks_wanted.h"
#include "worker/events.h"
#include "worker/generation.h"

namespace baton::worker {

struct LocalRuns::Run {
  Submission submission;
  std::optional<Room::ClaimId> claim;      // kWaiting
  std::unique_ptr<Generation> generation;  // kRunning
  TimerHandle deadline;
};

LocalRuns::LocalRuns(WorkerContext& context) : context_(context) {}

LocalRuns::~LocalRuns() {
  for (const auto& [attempt, run] : runs_) {
    if (run->claim.has_value()) context_.room.Cancel(*run->claim);
  }
}

absl::Status LocalRuns::Submit(Submission submission) {
  const DecoderState& state = submission.state;
  BATON_ASSIGN_OR_RETURN(
      std::vector<uint32_t> wanted,
      BlocksWanted(context_, state.prompt.size(), state.choices.size(), state.stop.max_tokens));
  const AttemptId attempt = submission.state.attempt;
  auto run = std::make_unique<Run>();
  run->submission = std::move(submission);
  run->claim = context_.room.Add(
      {run->submission.admitted_at, std::move(wanted),
       [this, attempt](kv::BlockLease lease) { Start(attempt, std::move(lease)); }, nullptr});
  if (run->submission.deadline.has_value()) {
    run->deadline =
        context_.executor.PostAt(*run->submission.deadline, [this, attempt] { Expire(attempt); });
  }
  runs_[attempt] = std::move(run);
  return absl::OkStatus();
}

void LocalRuns::Start(const AttemptId& attempt, kv::BlockLease lease) {
  Run& run = *runs_.at(attempt);
  run.claim.reset();
  run.generation = std::make_unique<Generation>(attempt, context_.engine, context_.sessions, true,
                                                [this, attempt] { Finish(attempt); });
  engine::NewSequence sequence;
  sequence.state = StateAt(run.submission, context_.executor.Now());
  sequence.lease = std::move(lease);
  const absl::Status status = run.generation->Start(std::move(sequence));
  if (!status.ok()) {
    context_.sessions.Emit(attempt.router, FailedEvent(attempt, status, v1::CAUSE_INTERNAL));
    Finish(attempt);
  }
  context_.sessions.Touch();
}

void LocalRuns::Expire(const AttemptId& attempt) {
  context_.sessions.Emit(attempt.router, ExpiredEvent(attempt));
  Finish(attempt);
}

void LocalRuns::Cancel(const AttemptId& attempt) {
  if (Has(attempt)) Finish(attempt);
}

void LocalRuns::DropRouter(const Epoch& router, v1::Cause /*cause*/) {
  const AttemptId first{router, 0, 0};
  for (auto it = runs_.lower_bound(first); it != runs_.end() && it->first.router == router;) {
    const AttemptId attempt = (it++)->first;
    Finish(attempt);
  }
}

void LocalRuns::Finish(const AttemptId& attempt) {
  const auto node = runs_.extract(attempt);
  if (node.mapped()->claim.has_value()) context_.room.Cancel(*node.mapped()->claim);
  context_.tombstones.Add(attempt);
  context_.log.Info("attempt over", {{"request", attempt.ToString()}});
  context_.sessions.Touch();
}

QueueLoad LocalRuns::Queued() const {
  QueueLoad load;
  for (const auto& [attempt, run] : runs_) {
    if (!run->claim.has_value()) continue;
    ++load.waiting;
    load.prefill_tokens += run->submission.state.prompt.size();
  }
  return load;
}

}  // namespace baton::worker
