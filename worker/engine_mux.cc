#include "worker/engine_mux.h"

#include <utility>

#include "common/status_macros.h"

namespace baton::worker {

EngineMux::EngineMux(const engine::EngineOptions& options, const Environment& environment)
    : on_step_end_(environment.on_step_end),
      engine_(options, {environment.vocab, environment.executor, environment.runner,
                        environment.pool, environment.metrics, *this, environment.cache,
                        environment.others, environment.on_room, environment.coming}) {}

absl::StatusOr<engine::SequenceId> EngineMux::Add(engine::NewSequence sequence,
                                                  SequenceOwner& owner) {
  const engine::SequenceMode mode = sequence.mode;
  BATON_ASSIGN_OR_RETURN(const engine::SequenceId id, engine_.Add(std::move(sequence)));
  owners_[id] = {&owner, mode};
  return id;
}

void EngineMux::Remove(engine::SequenceId sequence) {
  owners_.erase(sequence);
  engine_.Remove(sequence);
}

void EngineMux::OnLayerReady(engine::SequenceId sequence, uint32_t layer, uint32_t tokens) {
  const auto found = owners_.find(sequence);
  if (found != owners_.end()) found->second.owner->OnLayerReady(layer, tokens);
}

void EngineMux::OnPromptLogprobs(engine::SequenceId sequence, uint32_t position,
                                 std::vector<TokenLogprobs> logprobs) {
  const auto found = owners_.find(sequence);
  if (found == owners_.end()) return;
  found->second.owner->OnPromptLogprobs(position, std::move(logprobs));
}

void EngineMux::OnToken(const engine::TokenEvent& event) {
  const auto found = owners_.find(event.sequence);
  if (found == owners_.end()) return;
  const Owned owned = found->second;
  if (event.last && owned.mode == engine::SequenceMode::kGenerate) owners_.erase(found);
  owned.owner->OnToken(event);
}

void EngineMux::OnSequenceFailed(engine::SequenceId sequence, absl::Status status) {
  const auto found = owners_.find(sequence);
  if (found == owners_.end()) return;
  SequenceOwner* const owner = found->second.owner;
  owners_.erase(found);
  owner->OnSequenceFailed(status);
}

}  // namespace baton::worker
