#include "engine/sequence.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "common/check.h"

namespace baton::engine {

Sequence::Sequence(SequenceId id, SequenceMode mode, const DecoderState& state, Time admitted_at,
                   kv::BlockTable table, const Vocab& vocab, uint32_t context_length)
    : id_(id),
      mode_(mode),
      sampling_(state.sampling),
      max_tokens_(state.stop.max_tokens),
      context_length_(context_length),
      prompt_length_(static_cast<uint32_t>(state.prompt.size())),
      logprobs_(state.logprobs),
      scores_prompt_(state.logprobs.prompt.has_value() && state.prompt_logprobs.empty()),
      admitted_at_(admitted_at),
      tokens_(state.prompt),
      table_(std::move(table)),
      stop_(vocab, state.stop),
      editor_(state.sampling, state.prompt) {
  const std::vector<TokenId>& sampled = state.choices.front().tokens;
  tokens_.insert(tokens_.end(), sampled.begin(), sampled.end());
}

std::vector<TokenId> Sequence::Chunk(uint32_t length) const {
  BATON_CHECK(length <= pending());
  const auto begin = tokens_.begin() + computed();
  return std::vector<TokenId>(begin, begin + length);
}

std::vector<TokenId> Sequence::Scored(uint32_t length) const {
  const uint32_t end = std::min(computed() + length + 1, prompt_length_);
  if (!scores_prompt_ || end <= computed() + 1) return {};
  return std::vector<TokenId>(tokens_.begin() + computed() + 1, tokens_.begin() + end);
}

TokenEvent Sequence::Accept(TokenId token, std::optional<TokenLogprobs> logprobs) {
  tokens_.push_back(token);
  TokenEvent event = Judge(static_cast<uint32_t>(tokens_.size()) - 1);
  event.logprobs = std::move(logprobs);
  return event;
}

absl::StatusOr<std::vector<TokenEvent>> Sequence::Replay(const ChoiceState& choice) {
  std::vector<TokenEvent> events;
  for (uint32_t position = prompt_length_; position < tokens_.size(); ++position) {
    if (!events.empty() && events.back().finish_reason != FinishReason::kNone) {
      return absl::InvalidArgumentError("choices[0].tokens: goes on after its end at position " +
                                        std::to_string(position - 1));
    }
    events.push_back(Judge(position));
    if (logprobs_.output.has_value()) {
      events.back().logprobs = choice.logprobs[position - prompt_length_];
    }
  }
  return events;
}

TokenEvent Sequence::Judge(uint32_t position) {
  TokenEvent event{.sequence = id_, .position = position, .token = tokens_[position]};
  editor_.Accept(event.token);
  if (stop_.Accept(event.token) != StopReason::kNone) {
    event.finish_reason = FinishReason::kStop;
  } else if (position + 1 - prompt_length_ >= max_tokens_ || position + 1 >= context_length_) {
    event.finish_reason = FinishReason::kLength;
    stop_.Finish();
  }
  event.visible_bytes = stop_.visible_bytes();
  held_ = mode_ == SequenceMode::kPrefillOnly || event.finish_reason != FinishReason::kNone;
  return event;
}

}  // namespace baton::engine
