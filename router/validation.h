// The public request, field by field, with the codes of DESIGN section 18: every error names the
// field by its path, and the limit. Cheap: nothing is tokenized here.
#ifndef BATON_ROUTER_VALIDATION_H_
#define BATON_ROUTER_VALIDATION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "baton/v1/inference.pb.h"
#include "common/decoder_state.h"
#include "router/model_text.h"

namespace baton::router {

struct ValidationLimits {
  uint32_t context_length = 0;
};

struct ValidGeneration {
  PromptInput input;
  SamplingParams sampling;
  std::optional<uint64_t> seed;  // absent: the router draws one
  StopParams stop;               // max_tokens 0: not given
  LogprobParams logprobs;
  uint32_t n = 1;
  uint32_t best_of = 1;  // at least n
  std::string request_id;
  std::string tenant;
  std::string cache_salt;
  bool bypass_cache = false;
  int priority = 0;
};

absl::StatusOr<ValidGeneration> Validate(const v1::Generation& generation, const ModelText& model,
                                         const ValidationLimits& limits);

// The input alone. `path` is what fields are named below: "generation." or "".
absl::StatusOr<PromptInput> ValidateInput(const v1::Generation& generation, const std::string& path,
                                          const ModelText& model, const ValidationLimits& limits);

absl::Status ValidateModelName(const std::string& name, const std::string& path,
                               const ModelText& model);

}  // namespace baton::router

#endif  // BATON_ROUTER_VALIDATION_H_
