#include "engine/new_sequence.h"

#include <algorithm>
#include <string>

#include "common/status_macros.h"
#include "kv/block_demand.h"
#include "text/stop.h"

namespace baton::engine {

namespace {

absl::Status Bad(const std::string& text) { return absl::InvalidArgumentError(text); }

absl::Status CheckTokens(const Vocab& vocab, const std::vector<TokenId>& tokens,
                         const std::string& field) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (vocab.Contains(tokens[i])) continue;
    return Bad(field + "[" + std::to_string(i) + "]: token " + std::to_string(tokens[i]) +
               " is not in [0, " + std::to_string(vocab.size()) + ")");
  }
  return absl::OkStatus();
}

std::string Indexed(uint32_t choice, const char* field) {
  return "choices[" + std::to_string(choice) + "]." + field;
}

absl::Status CheckChoices(const NewSequence& sequence, const SequenceLimits& limits) {
  const DecoderState& state = sequence.state;
  const size_t prompt = state.prompt.size();
  if (sequence.filled > prompt) return Bad("filled: beyond the prompt");
  for (uint32_t i = 0; i < state.choices.size(); ++i) {
    const std::vector<TokenId>& tokens = state.choices[i].tokens;
    BATON_RETURN_IF_ERROR(CheckTokens(limits.vocab, tokens, Indexed(i, "tokens")));
    if (prompt + tokens.size() > limits.context_length) {
      return Bad(Indexed(i, "tokens") + ": beyond the context");
    }
    if (tokens.empty() && sequence.filled == prompt) {
      return Bad("filled: must leave at least one token to run");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLogprobs(const NewSequence& sequence) {
  const DecoderState& state = sequence.state;
  bool sampled = false;
  for (uint32_t i = 0; i < state.choices.size(); ++i) {
    const ChoiceState& choice = state.choices[i];
    if (choice.logprobs.size() != (state.logprobs.output.has_value() ? choice.tokens.size() : 0)) {
      return Bad(Indexed(i, "logprobs") + ": must be one for each token exactly when asked for");
    }
    sampled |= !choice.tokens.empty();
  }
  const size_t scores = state.logprobs.prompt.has_value() ? state.prompt.size() - 1 : 0;
  const bool none = state.prompt_logprobs.empty();
  if (!none && state.prompt_logprobs.size() != scores) {
    return Bad("prompt_logprobs: " + std::to_string(state.prompt_logprobs.size()) +
               " entries; none or " + std::to_string(scores) + " are right");
  }
  if (none && scores > 0 && (sequence.filled > 0 || sampled)) {
    return Bad("prompt_logprobs: must come with a prompt that was computed elsewhere");
  }
  return absl::OkStatus();
}

// As much as it may come to need fits the empty pool.
absl::Status CheckRoom(const NewSequence& sequence, const SequenceLimits& limits) {
  const auto prompt = static_cast<uint32_t>(sequence.state.prompt.size());
  const bool grows = sequence.mode == SequenceMode::kGenerate;
  const uint32_t n = grows ? static_cast<uint32_t>(sequence.state.choices.size()) : 1;
  const uint32_t most = grows ? sequence.state.stop.max_tokens : 1;
  BATON_ASSIGN_OR_RETURN(const kv::BlockPlaces places,
                         kv::PlacesNeeded(prompt, n, std::min(most, limits.context_length - prompt),
                                          limits.block_size));
  const std::vector<uint32_t> needed = limits.windows.Needed(places, 0, limits.pool_blocks.size());
  for (size_t g = 0; g < needed.size(); ++g) {
    if (needed[g] <= limits.pool_blocks[g]) continue;
    return Bad("prompt, n and max_tokens need " + std::to_string(needed[g]) +
               " KV blocks, the pool has " + std::to_string(limits.pool_blocks[g]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNewSequence(const NewSequence& sequence, const SequenceLimits& limits) {
  const DecoderState& state = sequence.state;
  if (state.prompt.empty()) return Bad("prompt: empty");
  if (state.prompt.size() >= limits.context_length) {
    return Bad("prompt: " + std::to_string(state.prompt.size()) +
               " tokens do not leave room for one more in a context of " +
               std::to_string(limits.context_length));
  }
  if (state.choices.empty() || state.choices.size() > kMaxChoices) {
    return Bad("choices: " + std::to_string(state.choices.size()) + ", must be 1 to " +
               std::to_string(kMaxChoices));
  }
  if (state.stop.max_tokens == 0) return Bad("stop.max_tokens: must be at least 1");
  BATON_RETURN_IF_ERROR(CheckTokens(limits.vocab, state.prompt, "prompt"));
  BATON_RETURN_IF_ERROR(ValidateStopParams(state.stop, limits.vocab.size()));
  for (const LogitBias& bias : state.sampling.logit_bias) {
    BATON_RETURN_IF_ERROR(CheckTokens(limits.vocab, {bias.token}, "sampling.logit_bias"));
  }
  BATON_RETURN_IF_ERROR(CheckChoices(sequence, limits));
  BATON_RETURN_IF_ERROR(CheckLogprobs(sequence));
  return CheckRoom(sequence, limits);
}

}  // namespace baton::engine
