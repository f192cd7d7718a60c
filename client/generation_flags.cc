#include "client/generation_flags.h"

#include "common/status_macros.h"

namespace baton::client {
namespace {

absl::Status ApplyPenalties(const Arguments& args, v1::SamplingOptions& out) {
  BATON_ASSIGN_OR_RETURN(const auto presence, args.Float("presence-penalty"));
  if (presence.has_value()) out.set_presence_penalty(*presence);
  BATON_ASSIGN_OR_RETURN(const auto frequency, args.Float("frequency-penalty"));
  if (frequency.has_value()) out.set_frequency_penalty(*frequency);
  BATON_ASSIGN_OR_RETURN(const auto repetition, args.Float("repetition-penalty"));
  if (repetition.has_value()) out.set_repetition_penalty(*repetition);
  for (const std::string& text : args.All("logit-bias")) {
    BATON_ASSIGN_OR_RETURN(const auto biases, ParseBiases("logit-bias", text));
    for (const auto& [id, value] : biases) {
      v1::LogitBias& bias = *out.add_logit_bias();
      bias.set_token_id(id);
      bias.set_bias(value);
    }
  }
  return absl::OkStatus();
}

absl::Status ApplySampling(const Arguments& args, v1::SamplingOptions& out) {
  BATON_ASSIGN_OR_RETURN(const auto temperature, args.Float("temperature"));
  if (temperature.has_value()) out.set_temperature(*temperature);
  BATON_ASSIGN_OR_RETURN(const auto top_k, args.Int("top-k"));
  if (top_k.has_value()) out.set_top_k(*top_k);
  BATON_ASSIGN_OR_RETURN(const auto top_p, args.Float("top-p"));
  if (top_p.has_value()) out.set_top_p(*top_p);
  BATON_ASSIGN_OR_RETURN(const auto min_p, args.Float("min-p"));
  if (min_p.has_value()) out.set_min_p(*min_p);
  BATON_ASSIGN_OR_RETURN(const auto seed, args.Unsigned("seed"));
  if (seed.has_value()) out.set_seed(*seed);
  return ApplyPenalties(args, out);
}

absl::Status ApplyStop(const Arguments& args, v1::StopOptions& out) {
  BATON_ASSIGN_OR_RETURN(const auto max_tokens, args.Int("max-tokens"));
  if (max_tokens.has_value()) out.set_max_tokens(*max_tokens);
  for (const std::string& text : args.All("stop")) out.add_stop_strings(text);
  for (const std::string& text : args.All("stop-id")) {
    BATON_ASSIGN_OR_RETURN(const auto ids, ParseIds("stop-id", text));
    out.mutable_stop_token_ids()->Add(ids.begin(), ids.end());
  }
  if (args.Has("ignore-eos")) out.set_ignore_eos(true);
  if (args.Has("include-stop")) out.set_include_stop(true);
  BATON_ASSIGN_OR_RETURN(const auto min_tokens, args.Count("min-tokens"));
  if (min_tokens.has_value()) out.set_min_tokens(*min_tokens);
  return absl::OkStatus();
}

}  // namespace

const std::set<std::string>& GenerationFlags() {
  static const std::set<std::string> kFlags = {"max-tokens",
                                               "min-tokens",
                                               "temperature",
                                               "top-k",
                                               "top-p",
                                               "min-p",
                                               "presence-penalty",
                                               "frequency-penalty",
                                               "repetition-penalty",
                                               "logit-bias",
                                               "seed",
                                               "stop",
                                               "stop-id",
                                               "model"};
  return kFlags;
}

const std::set<std::string>& GenerationSwitches() {
  static const std::set<std::string> kSwitches = {"ignore-eos", "include-stop"};
  return kSwitches;
}

absl::Status ApplyGenerationFlags(const Arguments& args, v1::Generation& out) {
  BATON_RETURN_IF_ERROR(ApplySampling(args, *out.mutable_sampling()));
  BATON_RETURN_IF_ERROR(ApplyStop(args, *out.mutable_stop()));
  out.set_model(args.Get("model"));
  return absl::OkStatus();
}

}  // namespace baton::client
