#include "router/validation.h"

#include <cmath>
#include <set>
#include <utility>

#include "common/status_macros.h"
#include "router/error_reasons.h"
#include "router/request.h"
#include "router/status_details.h"
#include "text/stop.h"
#include "text/utf8.h"

namespace baton::router {
namespace {

constexpr size_t kMaxNameBytes = 128;
constexpr float kMaxTemperature = 100;
constexpr size_t kMaxRoleBytes = 64;

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

absl::Status CheckRange(const std::string& path, float value, bool zero_allowed) {
  if (value <= 1 && (value > 0 || (zero_allowed && value == 0))) return absl::OkStatus();
  return BadField(path,
                  "is " + Number(value) + "; must be in " + (zero_allowed ? "[0, 1]" : "(0, 1]"));
}

absl::Status CheckSalt(const std::string& salt) {
  if (salt.size() <= kMaxNameBytes) return absl::OkStatus();
  return BadField("generation.cache_salt", "has " + std::to_string(salt.size()) +
                                               " bytes; at most " + std::to_string(kMaxNameBytes));
}

absl::Status CheckChoices(const v1::Generation& g, ValidGeneration& out) {
  const std::string most = std::to_string(kMaxChoices) + "]";
  if (g.has_n()) out.n = g.n();
  if (out.n < 1 || out.n > kMaxChoices) {
    return BadField("generation.n", "is " + std::to_string(out.n) + "; must be in [1, " + most);
  }
  out.best_of = g.has_best_of() ? g.best_of() : out.n;
  if (out.best_of >= out.n && out.best_of <= kMaxChoices) return absl::OkStatus();
  return BadField("generation.best_of", "is " + std::to_string(out.best_of) +
                                            "; must be in [n, which is " + std::to_string(out.n) +
                                            ", " + most);
}

// Of requests and tenants.
absl::Status CheckName(const std::string& path, const std::string& name) {
  if (name.size() > kMaxNameBytes) {
    return BadField(path, "has " + std::to_string(name.size()) + " bytes; at most " +
                              std::to_string(kMaxNameBytes));
  }
  for (const char c : name) {
    if (c < 0x20 || c > 0x7e) return BadField(path, "must be printable ASCII");
  }
  return absl::OkStatus();
}

absl::Status CheckPriority(int priority) {
  if (priority >= kMinPriority && priority <= kMaxPriority) return absl::OkStatus();
  return BadField("generation.priority", "is " + std::to_string(priority) + "; must be in [" +
                                             std::to_string(kMinPriority) + ", " +
                                             std::to_string(kMaxPriority) + "]");
}

absl::Status CheckWithin(const std::string& path, float value, float least, float most) {
  if (value >= least && value <= most) return absl::OkStatus();  // NaN is not
  return BadField(
      path, "is " + Number(value) + "; must be in [" + Number(least) + ", " + Number(most) + "]");
}

absl::Status CheckTokenId(const std::string& path, TokenId id, const ModelText& model) {
  if (model.vocab().Contains(id)) return absl::OkStatus();
  return BadField(path, "is " + std::to_string(id) + "; must be in [0, " +
                            std::to_string(model.vocab().size()) + ")");
}

absl::Status CheckPenalties(const v1::SamplingOptions& in, SamplingParams& out) {
  const std::string path = "generation.sampling.";
  out.presence_penalty = in.presence_penalty();
  BATON_RETURN_IF_ERROR(
      CheckWithin(path + "presence_penalty", out.presence_penalty, -kMaxPenalty, kMaxPenalty));
  out.frequency_penalty = in.frequency_penalty();
  BATON_RETURN_IF_ERROR(
      CheckWithin(path + "frequency_penalty", out.frequency_penalty, -kMaxPenalty, kMaxPenalty));
  if (in.has_repetition_penalty()) out.repetition_penalty = in.repetition_penalty();
  return CheckWithin(path + "repetition_penalty", out.repetition_penalty, kMinRepetitionPenalty,
                     kMaxRepetitionPenalty);
}

absl::Status CheckLogitBias(const v1::SamplingOptions& in, const ModelText& model,
                            SamplingParams& out) {
  const std::string path = "generation.sampling.logit_bias";
  if (static_cast<uint32_t>(in.logit_bias_size()) > kMaxLogitBiases) {
    return BadField(path, "has " + std::to_string(in.logit_bias_size()) + " entries; at most " +
                              std::to_string(kMaxLogitBiases));
  }
  std::set<TokenId> seen;
  for (int i = 0; i < in.logit_bias_size(); ++i) {
    const v1::LogitBias& bias = in.logit_bias(i);
    const std::string entry = path + "[" + std::to_string(i) + "]";
    BATON_RETURN_IF_ERROR(CheckTokenId(entry + ".token_id", bias.token_id(), model));
    BATON_RETURN_IF_ERROR(CheckWithin(entry + ".bias", bias.bias(), -kMaxLogitBias, kMaxLogitBias));
    if (!seen.insert(bias.token_id()).second) {
      return BadField(entry + ".token_id",
                      "is " + std::to_string(bias.token_id()) + " again; each id may come once");
    }
    out.logit_bias.push_back({bias.token_id(), bias.bias()});
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<uint32_t>> CheckTop(const std::string& path, bool has, uint32_t top) {
  if (!has) return std::optional<uint32_t>();
  if (top <= kMaxTopLogprobs) return std::optional<uint32_t>(top);
  return BadField(path,
                  "is " + std::to_string(top) + "; at most " + std::to_string(kMaxTopLogprobs));
}

absl::StatusOr<LogprobParams> CheckLogprobs(const v1::LogprobOptions& in) {
  LogprobParams out;
  const std::string path = "generation.logprobs.";
  BATON_ASSIGN_OR_RETURN(out.output, CheckTop(path + "output", in.has_output(), in.output()));
  BATON_ASSIGN_OR_RETURN(out.prompt, CheckTop(path + "prompt", in.has_prompt(), in.prompt()));
  return out;
}

absl::StatusOr<SamplingParams> CheckSampling(const v1::SamplingOptions& in,
                                             const ModelText& model) {
  const std::string path = "generation.sampling.";
  SamplingParams out;
  if (in.has_temperature()) out.temperature = in.temperature();
  BATON_RETURN_IF_ERROR(CheckWithin(path + "temperature", out.temperature, 0, kMaxTemperature));
  if (in.has_top_k()) out.top_k = in.top_k();
  if (out.top_k < 0) {
    return BadField(path + "top_k",
                    "is " + std::to_string(out.top_k) + "; must be at least 0 (0: off)");
  }
  if (in.has_top_p()) out.top_p = in.top_p();
  BATON_RETURN_IF_ERROR(CheckRange(path + "top_p", out.top_p, false));
  if (in.has_min_p()) out.min_p = in.min_p();
  BATON_RETURN_IF_ERROR(CheckRange(path + "min_p", out.min_p, true));
  BATON_RETURN_IF_ERROR(CheckPenalties(in, out));
  BATON_RETURN_IF_ERROR(CheckLogitBias(in, model, out));
  return out;
}

absl::Status CheckStopStrings(const v1::StopOptions& in, StopParams& out) {
  const std::string path = "generation.stop.stop_strings";
  if (static_cast<size_t>(in.stop_strings_size()) > kMaxStopStrings) {
    return BadField(path, "has " + std::to_string(in.stop_strings_size()) + " entries; at most " +
                              std::to_string(kMaxStopStrings));
  }
  for (int i = 0; i < in.stop_strings_size(); ++i) {
    const std::string& text = in.stop_strings(i);
    const std::string entry = path + "[" + std::to_string(i) + "]";
    if (text.empty()) return BadField(entry, "must not be empty");
    if (text.size() > kMaxStopStringBytes) {
      return BadField(entry, "has " + std::to_string(text.size()) + " bytes; at most " +
                                 std::to_string(kMaxStopStringBytes));
    }
    if (!IsValidUtf8(text)) return BadField(entry, "is not valid UTF-8");
    out.stop_strings.push_back(text);
  }
  return absl::OkStatus();
}

absl::StatusOr<StopParams> CheckStop(const v1::StopOptions& in, const ModelText& model) {
  StopParams out;
  if (in.has_max_tokens()) {
    if (in.max_tokens() < 1) {
      return BadField("generation.stop.max_tokens",
                      "is " + std::to_string(in.max_tokens()) + "; must be at least 1");
    }
    out.max_tokens = static_cast<uint32_t>(in.max_tokens());
    if (in.min_tokens() > out.max_tokens) {
      return BadField("generation.stop.min_tokens", "is " + std::to_string(in.min_tokens()) +
                                                        "; must be at most max_tokens of " +
                                                        std::to_string(in.max_tokens()));
    }
  }
  out.min_tokens = in.min_tokens();
  BATON_RETURN_IF_ERROR(CheckStopStrings(in, out));
  const std::string path = "generation.stop.stop_token_ids";
  if (static_cast<size_t>(in.stop_token_ids_size()) > kMaxStopTokenIds) {
    return BadField(path, "has " + std::to_string(in.stop_token_ids_size()) + " entries; at most " +
                              std::to_string(kMaxStopTokenIds));
  }
  for (int i = 0; i < in.stop_token_ids_size(); ++i) {
    BATON_RETURN_IF_ERROR(
        CheckTokenId(path + "[" + std::to_string(i) + "]", in.stop_token_ids(i), model));
  }
  out.stop_token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  out.ignore_eos = in.ignore_eos();
  out.include_stop = in.include_stop();
  return out;
}

// Before tokenizing: a text of n bytes is at least n / longest token tokens long.
absl::Status CheckLength(const std::string& path, uint64_t bytes, uint64_t ids,
                         const ModelText& model, const ValidationLimits& limits) {
  const uint64_t longest = model.vocab().max_token_bytes();
  const uint64_t most = uint64_t{limits.context_length} * longest;
  if (bytes > most) {
    return BadField(path,
                    "has " + std::to_string(bytes) + " bytes; at most " + std::to_string(most) +
                        " (context of " + std::to_string(limits.context_length) +
                        " x longest token of " + std::to_string(longest) + " bytes)",
                    kReasonPromptTooLong);
  }
  if (ids >= limits.context_length) {
    return BadField(path,
                    "has " + std::to_string(ids) + " tokens; must be shorter than the context of " +
                        std::to_string(limits.context_length),
                    kReasonPromptTooLong);
  }
  return absl::OkStatus();
}

absl::StatusOr<PromptInput> CheckPrompt(const v1::Prompt& prompt, const std::string& path,
                                        const ModelText& model, const ValidationLimits& limits) {
  PromptInput input;
  input.path = path;
  uint64_t bytes = 0, ids = 0;
  for (const v1::PromptSegment& segment : prompt.segments()) {
    bytes += segment.text().size();
    ids += static_cast<uint64_t>(segment.token_ids().ids_size());
  }
  if (bytes + ids == 0) return BadField(path, "must not be empty");
  // Empty segments cost a client two bytes each and us a hundred.
  if (static_cast<uint32_t>(prompt.segments_size()) > limits.context_length) {
    return BadField(path + ".segments", "has " + std::to_string(prompt.segments_size()) +
                                            " entries; at most as many as the context of " +
                                            std::to_string(limits.context_length));
  }
  BATON_RETURN_IF_ERROR(CheckLength(path, bytes, ids, model, limits));
  for (int i = 0; i < prompt.segments_size(); ++i) {
    const v1::PromptSegment& segment = prompt.segments(i);
    const std::string here = path + ".segments[" + std::to_string(i) + "]";
    PromptPart part;
    part.is_text = !segment.has_token_ids();
    part.text = segment.text();
    if (!IsValidUtf8(part.text)) return BadField(here + ".text", "is not valid UTF-8");
    part.ids.assign(segment.token_ids().ids().begin(), segment.token_ids().ids().end());
    // Names are made for what is wrong only: there may be millions.
    for (size_t k = 0; k < part.ids.size(); ++k) {
      if (model.vocab().Contains(part.ids[k])) continue;
      return CheckTokenId(here + ".token_ids.ids[" + std::to_string(k) + "]", part.ids[k], model);
    }
    input.parts.push_back(std::move(part));
  }
  return input;
}

absl::StatusOr<PromptInput> CheckChat(const v1::Chat& chat, const std::string& path,
                                      const ModelText& model, const ValidationLimits& limits) {
  PromptInput input;
  input.path = path;
  input.is_chat = true;
  if (chat.messages().empty()) return BadField(path + ".messages", "must not be empty");
  uint64_t bytes = 0;
  for (const v1::ChatMessage& message : chat.messages()) bytes += message.content().size() + 1;
  BATON_RETURN_IF_ERROR(CheckLength(path, bytes, 0, model, limits));
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatMessage& message = chat.messages(i);
    const std::string here = path + ".messages[" + std::to_string(i) + "]";
    if (message.role().empty() || message.role().size() > kMaxRoleBytes) {
      return BadField(here + ".role", "must have 1 to " + std::to_string(kMaxRoleBytes) + " bytes");
    }
    if (!IsValidUtf8(message.content())) return BadField(here + ".content", "is not valid UTF-8");
    input.messages.push_back({message.role(), message.content()});
  }
  return input;
}

}  // namespace

absl::Status ValidateModelName(const std::string& name, const std::string& path,
                               const ModelText& model) {
  if (name.empty() || name == model.name()) return absl::OkStatus();
  return ErrorWithReason(absl::StatusCode::kNotFound,
                         path + ": unknown model; this cluster serves \"" + model.name() + "\"",
                         kReasonUnknownModel);
}

absl::StatusOr<PromptInput> ValidateInput(const v1::Generation& generation, const std::string& path,
                                          const ModelText& model, const ValidationLimits& limits) {
  if (generation.has_chat()) return CheckChat(generation.chat(), path + "chat", model, limits);
  return CheckPrompt(generation.prompt(), path + "prompt", model, limits);
}

absl::StatusOr<ValidGeneration> Validate(const v1::Generation& generation, const ModelText& model,
                                         const ValidationLimits& limits) {
  BATON_RETURN_IF_ERROR(ValidateModelName(generation.model(), "generation.model", model));
  BATON_RETURN_IF_ERROR(CheckName("generation.request_id", generation.request_id()));
  BATON_RETURN_IF_ERROR(CheckName("generation.tenant", generation.tenant()));
  BATON_RETURN_IF_ERROR(CheckPriority(generation.priority()));
  BATON_RETURN_IF_ERROR(CheckSalt(generation.cache_salt()));
  ValidGeneration out;
  out.request_id = generation.request_id();
  out.tenant = generation.tenant();
  out.cache_salt = generation.cache_salt();
  out.bypass_cache = generation.bypass_cache();
  out.priority = generation.priority();
  BATON_RETURN_IF_ERROR(CheckChoices(generation, out));
  BATON_ASSIGN_OR_RETURN(out.sampling, CheckSampling(generation.sampling(), model));
  if (generation.sampling().has_seed()) out.seed = generation.sampling().seed();
  BATON_ASSIGN_OR_RETURN(out.stop, CheckStop(generation.stop(), model));
  BATON_ASSIGN_OR_RETURN(out.logprobs, CheckLogprobs(generation.logprobs()));
  BATON_ASSIGN_OR_RETURN(out.input, ValidateInput(generation, "generation.", model, limits));
  return out;
}

}  // namespace baton::router
