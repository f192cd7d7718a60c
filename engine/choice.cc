#include "engine/choice.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/check.h"
#include "kv/block_demand.h"

namespace baton::engine {

Choice::Choice(const Place& place, StopMatcher stop, sampling::LogitEditor editor)
    : place_(place), stop_(std::move(stop)), editor_(std::move(editor)) {}

TokenEvent Choice::Accept(TokenId token, std::optional<TokenLogprobs> logprobs) {
  const uint32_t position = place_.prompt_length + sampled();
  tokens_.push_back(token);
  editor_.Accept(token);
  TokenEvent event{.sequence = place_.sequence,
                   .choice = place_.index,
                   .position = position,
                   .token = token,
                   .logprobs = std::move(logprobs)};
  if (stop_.Accept(token) != StopReason::kNone) {
    event.finish_reason = FinishReason::kStop;
  } else if (sampled() >= place_.max_tokens || position + 1 >= place_.context_length) {
    event.finish_reason = FinishReason::kLength;
    stop_.Finish();
  }
  event.visible_bytes = stop_.visible_bytes();
  finished_ = event.finish_reason != FinishReason::kNone;
  if (finished_) table_ = kv::BlockTable();
  return event;
}

absl::StatusOr<std::vector<TokenEvent>> Choice::Replay(const ChoiceState& came) {
  const std::string name = "choices[" + std::to_string(place_.index) + "]";
  std::vector<TokenEvent> events;
  for (size_t i = 0; i < came.tokens.size(); ++i) {
    if (finished_) {
      return absl::InvalidArgumentError(name + ".tokens: goes on after its end at index " +
                                        std::to_string(i - 1));
    }
    std::optional<TokenLogprobs> logprobs;
    if (i < came.logprobs.size()) logprobs = came.logprobs[i];
    events.push_back(Accept(came.tokens[i], std::move(logprobs)));
  }
  if (came.finished && !finished_) {
    return absl::InvalidArgumentError(name + ".finished: its tokens do not end it");
  }
  return events;
}

uint32_t Choice::most_slots() const {
  const uint64_t end = uint64_t{place_.prompt_length} + place_.max_tokens;
  return static_cast<uint32_t>(std::min<uint64_t>(end, place_.context_length) - 1);
}

uint32_t Choice::slots_at_first(uint32_t block_size) const {
  const uint32_t grown = kv::TokensAtFirst(sampled(), place_.max_tokens, block_size) - 1;
  return static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{place_.prompt_length} + grown, most_slots()));
}

}  // namespace baton::engine
