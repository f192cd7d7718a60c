#include "worker/generation.h"

#include <utility>

#include "common/status_macros.h"
#include "worker/events.h"

namespace baton::worker {

Generation::Generation(const AttemptId& attempt, EngineMux& engine, RouterSessions& sessions,
                       bool attached, std::function<void()> over)
    : attempt_(attempt),
      engine_(engine),
      sessions_(sessions),
      over_(std::move(over)),
      attached_(attached) {}

Generation::~Generation() {
  if (sequence_.has_value()) engine_.Remove(*sequence_);
}

absl::Status Generation::Start(engine::NewSequence sequence) {
  BATON_ASSIGN_OR_RETURN(sequence_, engine_.Add(std::move(sequence), *this));
  return absl::OkStatus();
}

void Generation::Attach() {
  if (attached_) return;
  attached_ = true;
  const bool over = !running() && !kept_.empty();
  for (v1::WorkerEvent& event : std::exchange(kept_, {})) {
    sessions_.Emit(attempt_.router, std::move(event));
  }
  if (over) End();
}

void Generation::OnPromptLogprobs(uint32_t position, std::vector<TokenLogprobs> logprobs) {
  Emit(PromptLogprobsEvent(attempt_, position, logprobs));
}

void Generation::OnToken(const engine::TokenEvent& event) {
  Note(event.last ? GenerationEvent::kLastToken : GenerationEvent::kToken);
  Emit(TokenEventOf(attempt_, event));
  if (!event.last) return;
  sequence_.reset();
  if (attached_) End();
}

void Generation::OnSequenceFailed(const absl::Status& status) {
  Note(GenerationEvent::kSequenceFailed);
  sequence_.reset();
  Emit(FailedEvent(attempt_, status, v1::CAUSE_INTERNAL));
  if (attached_) End();
}

void Generation::Note(GenerationEvent event) const {
  if (on_event_) on_event_(event);
}

void Generation::Emit(v1::WorkerEvent event) {
  if (attached_) {
    sessions_.Emit(attempt_.router, std::move(event));
  } else {
    kept_.push_back(std::move(event));
  }
}

void Generation::End() {
  const std::function<void()> over = over_;  // survives this object
  over();
}

}  // namespace baton::worker
