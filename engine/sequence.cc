#include "engine/sequence.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"
#include "kv/block_fork.h"
#include "sampling/logit_edits.h"
#include "text/stop.h"

namespace baton::engine {

Sequence::Sequence(SequenceId id, SequenceMode mode, const DecoderState& state, Time admitted_at,
                   kv::BlockTable blocks, const Vocab& vocab, uint32_t context_length)
    : id_(id),
      mode_(mode),
      sampling_(state.sampling),
      logprobs_(state.logprobs),
      scores_prompt_(state.logprobs.prompt.has_value() && state.prompt_logprobs.empty()),
      admitted_at_(admitted_at),
      prompt_(state.prompt),
      blocks_(std::move(blocks)) {
  StopMatcher stop(vocab, state.stop);
  sampling::LogitEditor editor(state.sampling, state.prompt);
  const auto n = static_cast<uint32_t>(state.choices.size());
  Choice::Place place{id, 0, static_cast<uint32_t>(prompt_.size()), state.stop.max_tokens,
                      context_length};
  choices_.reserve(n);
  for (; place.index + 1 < n; ++place.index) choices_.emplace_back(place, stop, editor);
  choices_.emplace_back(place, std::move(stop), std::move(editor));
}

bool Sequence::over() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const Choice& choice) { return choice.finished(); });
}

absl::StatusOr<std::vector<TokenEvent>> Sequence::Replay(const std::vector<ChoiceState>& came) {
  std::vector<TokenEvent> events;
  for (Choice& choice : choices_) {
    BATON_ASSIGN_OR_RETURN(std::vector<TokenEvent> more, choice.Replay(came[choice.index()]));
    std::move(more.begin(), more.end(), std::back_inserter(events));
  }
  if (!events.empty()) events.back().last = over();
  return events;
}

std::vector<TokenId> Sequence::Chunk(uint32_t length) const {
  BATON_CHECK(length <= pending());
  const auto begin = prompt_.begin() + computed();
  return std::vector<TokenId>(begin, begin + length);
}

std::vector<TokenId> Sequence::Scored(uint32_t length) const {
  const uint32_t end = std::min(computed() + length + 1, static_cast<uint32_t>(prompt_.size()));
  if (!scores_prompt_ || end <= computed() + 1) return {};
  return std::vector<TokenId>(prompt_.begin() + computed() + 1, prompt_.begin() + end);
}

std::vector<ChoiceSample> Sequence::FirstSamples() const {
  std::vector<ChoiceSample> samples;
  for (const Choice& choice : choices_) {
    if (choice.sampled() == 0) samples.push_back(choice.NextSample());
  }
  return samples;
}

void Sequence::CompletePrompt() {
  BATON_CHECK(in_prompt() && pending() == 0);
  blocks_.SetState(kv::BlockState::kLive);
  if (mode_ == SequenceMode::kPrefillOnly) {
    phase_ = Phase::kHeld;
  } else {
    Fork();
  }
}

void Sequence::Fork() {
  phase_ = Phase::kForked;
  std::vector<Choice*> live;
  for (Choice& choice : choices_) {
    BATON_CHECK(choice.sampled() > 0);
    if (!choice.finished()) live.push_back(&choice);
  }
  kv::ForkedBlocks forked =
      kv::ForkBlocks(std::move(blocks_), static_cast<uint32_t>(choices_.size()),
                     static_cast<uint32_t>(live.size()));
  for (size_t i = 0; i < live.size(); ++i) live[i]->Start(std::move(forked.tables[i]));
  copies_ = std::move(forked.copies);
}

}  // namespace baton::engine
