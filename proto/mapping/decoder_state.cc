#include "proto/mapping/decoder_state.h"

#include <cmath>
#include <utility>

#include "common/status_macros.h"
#include "proto/mapping/ids.h"
#include "proto/mapping/spans.h"

namespace baton::proto {
namespace {

absl::Status Invalid(std::string_view field, const std::string& why) {
  return absl::InvalidArgumentError(std::string(field) + ": " + why);
}

absl::Status CheckCount(std::string_view field, size_t count, size_t limit) {
  if (count <= limit) return absl::OkStatus();
  return Invalid(field, std::to_string(count) + " exceeds the limit of " + std::to_string(limit));
}

template <typename Tokens>
absl::Status CheckTokens(std::string_view field, const Tokens& tokens, uint32_t vocab_size) {
  for (const int32_t token : tokens) {
    if (token >= 0 && static_cast<uint32_t>(token) < vocab_size) continue;
    return Invalid(field, "token " + std::to_string(token) + " is not below the vocabulary size " +
                              std::to_string(vocab_size));
  }
  return absl::OkStatus();
}

absl::StatusOr<SamplingParams> GetSampling(const state::v1::SamplingParams& from) {
  if (!std::isfinite(from.temperature()) || from.temperature() < 0) {
    return Invalid("sampling.temperature", "must be finite and not negative");
  }
  if (from.top_k() < 0) return Invalid("sampling.top_k", "must not be negative");
  if (!(from.top_p() > 0 && from.top_p() <= 1)) {
    return Invalid("sampling.top_p", "must be above 0 and at most 1");
  }
  if (!(from.min_p() >= 0 && from.min_p() <= 1)) {
    return Invalid("sampling.min_p", "must be between 0 and 1");
  }
  SamplingParams to;
  to.temperature = from.temperature();
  to.top_k = from.top_k();
  to.top_p = from.top_p();
  to.min_p = from.min_p();
  to.seed = from.seed();
  return to;
}

absl::StatusOr<StopParams> GetStop(const state::v1::StopParams& from,
                                   const DecoderStateLimits& limits) {
  if (from.max_tokens() == 0 || from.max_tokens() > limits.context_length) {
    return Invalid("stop.max_tokens",
                   "must be between 1 and " + std::to_string(limits.context_length));
  }
  BATON_RETURN_IF_ERROR(
      CheckCount("stop.stop_token_ids", from.stop_token_ids_size(), limits.max_stop_token_ids));
  BATON_RETURN_IF_ERROR(
      CheckTokens("stop.stop_token_ids", from.stop_token_ids(), limits.vocab_size));
  BATON_RETURN_IF_ERROR(
      CheckCount("stop.stop_strings", from.stop_strings_size(), limits.max_stop_strings));
  StopParams to;
  for (const std::string& text : from.stop_strings()) {
    if (text.empty()) return Invalid("stop.stop_strings", "must not be empty");
    BATON_RETURN_IF_ERROR(
        CheckCount("stop.stop_strings bytes", text.size(), limits.max_stop_string_bytes));
    to.stop_strings.push_back(text);
  }
  to.max_tokens = from.max_tokens();
  to.ignore_eos = from.ignore_eos();
  to.stop_token_ids.assign(from.stop_token_ids().begin(), from.stop_token_ids().end());
  return to;
}

absl::StatusOr<ChoiceState> GetChoice(const state::v1::ChoiceState& from, size_t prompt_tokens,
                                      const DecoderStateLimits& limits) {
  BATON_RETURN_IF_ERROR(
      CheckCount("choices.tokens", from.tokens_size(), limits.context_length - prompt_tokens));
  BATON_RETURN_IF_ERROR(CheckTokens("choices.tokens", from.tokens(), limits.vocab_size));
  ChoiceState to;
  to.tokens.assign(from.tokens().begin(), from.tokens().end());
  to.finished = from.finished();
  return to;
}

void SetStop(const StopParams& from, state::v1::StopParams& to) {
  to.set_max_tokens(from.max_tokens);
  to.set_ignore_eos(from.ignore_eos);
  to.mutable_stop_token_ids()->Assign(from.stop_token_ids.begin(), from.stop_token_ids.end());
  for (const std::string& text : from.stop_strings) to.add_stop_strings(text);
}

void SetSampling(const SamplingParams& from, state::v1::SamplingParams& to) {
  to.set_temperature(from.temperature);
  to.set_top_k(from.top_k);
  to.set_top_p(from.top_p);
  to.set_min_p(from.min_p);
  to.set_seed(from.seed);
}

absl::Status GetChoices(const state::v1::DecoderState& message, const DecoderStateLimits& limits,
                        DecoderState& state) {
  if (message.choices().empty()) return Invalid("choices", "must not be empty");
  BATON_RETURN_IF_ERROR(CheckCount("choices", message.choices_size(), limits.max_choices));
  for (const state::v1::ChoiceState& choice : message.choices()) {
    BATON_ASSIGN_OR_RETURN(ChoiceState to, GetChoice(choice, state.prompt.size(), limits));
    state.choices.push_back(std::move(to));
  }
  return absl::OkStatus();
}

}  // namespace

state::v1::DecoderState ToProto(const DecoderState& state) {
  state::v1::DecoderState message;
  Set(state.attempt, *message.mutable_attempt());
  SetSampling(state.sampling, *message.mutable_sampling());
  SetStop(state.stop, *message.mutable_stop());
  message.mutable_prompt()->Assign(state.prompt.begin(), state.prompt.end());
  for (const ChoiceState& choice : state.choices) {
    state::v1::ChoiceState& to = *message.add_choices();
    to.mutable_tokens()->Assign(choice.tokens.begin(), choice.tokens.end());
    to.set_finished(choice.finished);
  }
  message.set_cache_namespace(state.cache_namespace);
  message.set_age_ns(static_cast<uint64_t>(state.age.count()));
  if (state.remaining.has_value()) message.set_remaining_ns(state.remaining->count());
  return message;
}

std::string Serialize(const DecoderState& state) { return ToProto(state).SerializeAsString(); }

absl::StatusOr<DecoderState> FromProto(const state::v1::DecoderState& message,
                                       const DecoderStateLimits& limits) {
  DecoderState state;
  state.attempt = Get(message.attempt());
  if (state.attempt.router.IsZero()) return Invalid("attempt.router", "must not be zero");
  BATON_ASSIGN_OR_RETURN(state.sampling, GetSampling(message.sampling()));
  BATON_ASSIGN_OR_RETURN(state.stop, GetStop(message.stop(), limits));
  if (message.prompt().empty()) return Invalid("prompt", "must not be empty");
  if (static_cast<uint32_t>(message.prompt_size()) >= limits.context_length) {
    return Invalid("prompt", std::to_string(message.prompt_size()) +
                                 " tokens are not below the context length " +
                                 std::to_string(limits.context_length));
  }
  BATON_RETURN_IF_ERROR(CheckTokens("prompt", message.prompt(), limits.vocab_size));
  state.prompt.assign(message.prompt().begin(), message.prompt().end());
  BATON_RETURN_IF_ERROR(GetChoices(message, limits, state));
  BATON_RETURN_IF_ERROR(CheckCount("cache_namespace bytes", message.cache_namespace().size(),
                                   limits.max_namespace_bytes));
  state.cache_namespace = message.cache_namespace();
  const auto age = AgeFromPeer(message.age_ns());
  if (!age.has_value()) {
    return Invalid("age_ns", "must be at most " + std::to_string(kMaxSpan.count()));
  }
  state.age = *age;
  if (message.has_remaining_ns()) state.remaining = RemainingFromPeer(message.remaining_ns());
  return state;
}

absl::StatusOr<DecoderState> Parse(std::string_view bytes, const DecoderStateLimits& limits) {
  state::v1::DecoderState message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("decoder state: not a serialized DecoderState");
  }
  return FromProto(message, limits);
}

}  // namespace baton::proto
