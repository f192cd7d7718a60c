#include "proto/mapping/decoder_state.h"

#include <cmath>
#include <initializer_list>
#include <set>
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

absl::Status CheckCuts(const state::v1::SamplingParams& from) {
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
  return absl::OkStatus();
}

absl::Status CheckWithin(std::string_view field, float value, float least, float most) {
  if (value >= least && value <= most) return absl::OkStatus();  // NaN is not
  return Invalid(field,
                 "must be between " + std::to_string(least) + " and " + std::to_string(most));
}

absl::Status GetPenalties(const state::v1::SamplingParams& from, SamplingParams& to) {
  to.presence_penalty = from.presence_penalty();
  BATON_RETURN_IF_ERROR(
      CheckWithin("sampling.presence_penalty", to.presence_penalty, -kMaxPenalty, kMaxPenalty));
  to.frequency_penalty = from.frequency_penalty();
  BATON_RETURN_IF_ERROR(
      CheckWithin("sampling.frequency_penalty", to.frequency_penalty, -kMaxPenalty, kMaxPenalty));
  to.repetition_penalty = from.has_repetition_penalty() ? from.repetition_penalty() : 1;
  return CheckWithin("sampling.repetition_penalty", to.repetition_penalty, kMinRepetitionPenalty,
                     kMaxRepetitionPenalty);
}

absl::Status GetLogitBias(const state::v1::SamplingParams& from, uint32_t vocab_size,
                          SamplingParams& to) {
  BATON_RETURN_IF_ERROR(CheckCount("sampling.logit_bias", from.logit_bias_size(), kMaxLogitBiases));
  std::set<TokenId> seen;
  for (const state::v1::LogitBias& bias : from.logit_bias()) {
    BATON_RETURN_IF_ERROR(CheckTokens("sampling.logit_bias",
                                      std::initializer_list<int32_t>{bias.token_id()}, vocab_size));
    BATON_RETURN_IF_ERROR(
        CheckWithin("sampling.logit_bias", bias.bias(), -kMaxLogitBias, kMaxLogitBias));
    if (!seen.insert(bias.token_id()).second) {
      return Invalid("sampling.logit_bias",
                     "names token " + std::to_string(bias.token_id()) + " twice");
    }
    to.logit_bias.push_back({bias.token_id(), bias.bias()});
  }
  return absl::OkStatus();
}

absl::StatusOr<SamplingParams> GetSampling(const state::v1::SamplingParams& from,
                                           uint32_t vocab_size) {
  BATON_RETURN_IF_ERROR(CheckCuts(from));
  SamplingParams to;
  to.temperature = from.temperature();
  to.top_k = from.top_k();
  to.top_p = from.top_p();
  to.min_p = from.min_p();
  to.seed = from.seed();
  BATON_RETURN_IF_ERROR(GetPenalties(from, to));
  BATON_RETURN_IF_ERROR(GetLogitBias(from, vocab_size, to));
  return to;
}

absl::StatusOr<StopParams> GetStop(const state::v1::StopParams& from,
                                   const DecoderStateLimits& limits) {
  if (from.max_tokens() == 0 || from.max_tokens() > limits.context_length) {
    return Invalid("stop.max_tokens",
                   "must be between 1 and " + std::to_string(limits.context_length));
  }
  BATON_RETURN_IF_ERROR(
      CheckCount("stop.stop_token_ids", from.stop_token_ids_size(), kMaxStopTokenIds));
  BATON_RETURN_IF_ERROR(
      CheckTokens("stop.stop_token_ids", from.stop_token_ids(), limits.vocab_size));
  BATON_RETURN_IF_ERROR(CheckCount("stop.stop_strings", from.stop_strings_size(), kMaxStopStrings));
  StopParams to;
  for (const std::string& text : from.stop_strings()) {
    if (text.empty()) return Invalid("stop.stop_strings", "must not be empty");
    BATON_RETURN_IF_ERROR(CheckCount("stop.stop_strings bytes", text.size(), kMaxStopStringBytes));
    to.stop_strings.push_back(text);
  }
  if (from.min_tokens() > from.max_tokens()) {
    return Invalid("stop.min_tokens", std::to_string(from.min_tokens()) +
                                          " is above stop.max_tokens of " +
                                          std::to_string(from.max_tokens()));
  }
  to.min_tokens = from.min_tokens();
  to.include_stop = from.include_stop();
  to.max_tokens = from.max_tokens();
  to.ignore_eos = from.ignore_eos();
  to.stop_token_ids.assign(from.stop_token_ids().begin(), from.stop_token_ids().end());
  return to;
}

absl::StatusOr<std::optional<uint32_t>> GetTop(std::string_view field, bool has, uint32_t top) {
  if (!has) return std::optional<uint32_t>();
  BATON_RETURN_IF_ERROR(CheckCount(field, top, kMaxTopLogprobs));
  return std::optional<uint32_t>(top);
}

absl::StatusOr<LogprobParams> GetLogprobParams(const state::v1::LogprobParams& from) {
  LogprobParams to;
  BATON_ASSIGN_OR_RETURN(to.output, GetTop("logprobs.output", from.has_output(), from.output()));
  BATON_ASSIGN_OR_RETURN(to.prompt, GetTop("logprobs.prompt", from.has_prompt(), from.prompt()));
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
  BATON_ASSIGN_OR_RETURN(to.logprobs,
                         GetLogprobs("choices.logprobs", from.logprobs(), limits.vocab_size));
  return to;
}

void SetStop(const StopParams& from, state::v1::StopParams& to) {
  to.set_max_tokens(from.max_tokens);
  to.set_ignore_eos(from.ignore_eos);
  to.mutable_stop_token_ids()->Assign(from.stop_token_ids.begin(), from.stop_token_ids.end());
  for (const std::string& text : from.stop_strings) to.add_stop_strings(text);
  to.set_min_tokens(from.min_tokens);
  to.set_include_stop(from.include_stop);
}

void SetSampling(const SamplingParams& from, state::v1::SamplingParams& to) {
  to.set_temperature(from.temperature);
  to.set_top_k(from.top_k);
  to.set_top_p(from.top_p);
  to.set_min_p(from.min_p);
  to.set_seed(from.seed);
  to.set_presence_penalty(from.presence_penalty);
  to.set_frequency_penalty(from.frequency_penalty);
  to.set_repetition_penalty(from.repetition_penalty);
  for (const LogitBias& bias : from.logit_bias) {
    state::v1::LogitBias& added = *to.add_logit_bias();
    added.set_token_id(bias.token);
    added.set_bias(bias.bias);
  }
}

absl::Status GetChoices(const state::v1::DecoderState& message, const DecoderStateLimits& limits,
                        DecoderState& state) {
  if (message.choices().empty()) return Invalid("choices", "must not be empty");
  BATON_RETURN_IF_ERROR(CheckCount("choices", message.choices_size(), kMaxChoices));
  for (const state::v1::ChoiceState& choice : message.choices()) {
    BATON_ASSIGN_OR_RETURN(ChoiceState to, GetChoice(choice, state.prompt.size(), limits));
    state.choices.push_back(std::move(to));
  }
  return absl::OkStatus();
}

// One for each token exactly when asked for; those of a prompt may still be missing.
absl::Status GetLogprobState(const state::v1::DecoderState& message,
                             const DecoderStateLimits& limits, DecoderState& state) {
  BATON_ASSIGN_OR_RETURN(state.logprobs, GetLogprobParams(message.logprobs()));
  for (const ChoiceState& choice : state.choices) {
    const size_t wanted = state.logprobs.output.has_value() ? choice.tokens.size() : 0;
    if (choice.logprobs.size() == wanted) continue;
    return Invalid("choices.logprobs", std::to_string(choice.logprobs.size()) + " entries where " +
                                           std::to_string(wanted) + " are right");
  }
  BATON_ASSIGN_OR_RETURN(
      state.prompt_logprobs,
      GetLogprobs("prompt_logprobs", message.prompt_logprobs(), limits.vocab_size));
  const size_t all = state.logprobs.prompt.has_value() ? state.prompt.size() - 1 : 0;
  if (!state.prompt_logprobs.empty() && state.prompt_logprobs.size() != all) {
    return Invalid("prompt_logprobs", std::to_string(state.prompt_logprobs.size()) +
                                          " entries where none or " + std::to_string(all) +
                                          " are right");
  }
  return absl::OkStatus();
}

}  // namespace

void Set(const TokenLogprobs& from, state::v1::TokenLogprobs& to) {
  to.set_logprob(from.logprob);
  for (const TopLogprob& top : from.top) {
    to.add_top_token_ids(top.token);
    to.add_top_logprobs(top.logprob);
  }
}

absl::StatusOr<TokenLogprobs> GetTokenLogprobs(std::string_view field,
                                               const state::v1::TokenLogprobs& from,
                                               uint32_t vocab_size) {
  if (from.top_token_ids_size() != from.top_logprobs_size()) {
    return Invalid(field, "has " + std::to_string(from.top_token_ids_size()) + " top ids and " +
                              std::to_string(from.top_logprobs_size()) + " values");
  }
  BATON_RETURN_IF_ERROR(CheckCount(field, from.top_token_ids_size(), kMaxTopLogprobs));
  BATON_RETURN_IF_ERROR(CheckTokens(field, from.top_token_ids(), vocab_size));
  TokenLogprobs to{from.logprob(), {}};
  for (int i = 0; i < from.top_token_ids_size(); ++i) {
    to.top.push_back({from.top_token_ids(i), from.top_logprobs(i)});
  }
  return to;
}

absl::StatusOr<std::vector<TokenLogprobs>> GetLogprobs(
    std::string_view field,
    const google::protobuf::RepeatedPtrField<state::v1::TokenLogprobs>& from, uint32_t vocab_size) {
  std::vector<TokenLogprobs> out;
  for (const state::v1::TokenLogprobs& one : from) {
    BATON_ASSIGN_OR_RETURN(TokenLogprobs to, GetTokenLogprobs(field, one, vocab_size));
    out.push_back(std::move(to));
  }
  return out;
}

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
    for (const TokenLogprobs& one : choice.logprobs) Set(one, *to.add_logprobs());
  }
  if (state.logprobs.output.has_value()) {
    message.mutable_logprobs()->set_output(*state.logprobs.output);
  }
  if (state.logprobs.prompt.has_value()) {
    message.mutable_logprobs()->set_prompt(*state.logprobs.prompt);
  }
  for (const TokenLogprobs& one : state.prompt_logprobs) Set(one, *message.add_prompt_logprobs());
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
  BATON_ASSIGN_OR_RETURN(state.sampling, GetSampling(message.sampling(), limits.vocab_size));
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
  BATON_RETURN_IF_ERROR(
      CheckCount("cache_namespace bytes", message.cache_namespace().size(), kMaxNamespaceBytes));
  state.cache_namespace = message.cache_namespace();
  const auto age = AgeFromPeer(message.age_ns());
  if (!age.has_value()) {
    return Invalid("age_ns", "must be at most " + std::to_string(kMaxSpan.count()));
  }
  state.age = *age;
  if (message.has_remaining_ns()) state.remaining = RemainingFromPeer(message.remaining_ns());
  BATON_RETURN_IF_ERROR(GetLogprobState(message, limits, state));
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
