#include "engine/choice.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/check.h"

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

std::vector<TokenId> Choice::Chunk(uint32_t length) const {
  BATON_CHECK(length <= pending() && computed() >= place_.prompt_length);
  const auto begin = tokens_.begin() + (computed() - place_.prompt_length);
  return std::vector<TokenId>(begin, begin + length);
}

}  // namespace baton::engine
