#include "worker/local_runs.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "worker/blocks_wanted.h"
#include "worker/events.h"
#include "worker/generation.h"

namespace baton::worker {

namespace {

// Most tokens that a choice came with.
uint32_t Sampled(const DecoderState& state) {
  size_t most = 0;
  for (const ChoiceState& choice : state.choices) most = std::max(most, choice.tokens.size());
  return static_cast<uint32_t>(most);
}

}  // namespace

struct LocalRuns::Run {
  Submission submission;
  std::optional<Room::ClaimId> claim;  // kWaiting
  Demand demand;
  uint32_t held = 0;                       // of the prompt, by the cache, when it came
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
  const size_t n = state.choices.size();
  const uint32_t max_tokens = state.stop.max_tokens;
  BATON_RETURN_IF_ERROR(BlocksWanted(context_, state.prompt.size(), n, max_tokens).status());
  const AttemptId attempt = submission.state.attempt;
  auto run = std::make_unique<Run>();
  run->submission = std::move(submission);
  const DecoderState& kept = run->submission.state;
  auto prefix = PrefixOf(context_, kept.cache_namespace, kept.prompt, MostCached(kept));
  run->held = HeldOf(context_, prefix);
  run->demand = BlocksAtFirst(context_, kept.prompt.size(), n, max_tokens, Sampled(kept));
  run->claim = context_.room.Add(
      {.admitted_at = run->submission.admitted_at,
       .blocks = run->demand.blocks,
       .granted = [this, attempt](kv::CachedLease room) { Start(attempt, std::move(room)); },
       .prefix = std::move(prefix)});
  if (run->submission.deadline.has_value()) {
    run->deadline =
        context_.executor.PostAt(*run->submission.deadline, [this, attempt] { Expire(attempt); });
  }
  runs_[attempt] = std::move(run);
  return absl::OkStatus();
}

void LocalRuns::Start(const AttemptId& attempt, kv::CachedLease room) {
  Run& run = *runs_.at(attempt);
  run.claim.reset();
  PlaceBlocks(context_, run.demand, room.lease);
  run.generation = std::make_unique<Generation>(attempt, context_.engine, context_.sessions, true,
                                                [this, attempt] { Finish(attempt); });
  engine::NewSequence sequence;
  sequence.state = StateAt(run.submission, context_.executor.Now());
  sequence.lease = std::move(room.lease);
  sequence.filled = room.chain.blocks * context_.options.layout.block_size;
  sequence.chain = std::move(room.chain);
  if (sequence.filled > 0) {
    context_.sessions.Emit(attempt.router, CachedPromptEvent(attempt, sequence.filled));
  }
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
    load.prefill_tokens += run->submission.state.prompt.size() - run->held;
  }
  return load;
}

}  // namespace baton::worker
