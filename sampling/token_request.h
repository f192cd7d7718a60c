// All that a backend does with one row of logits, in one place for every backend: edit, sample, log
// probabilities.
#ifndef BATON_SAMPLING_TOKEN_REQUEST_H_
#define BATON_SAMPLING_TOKEN_REQUEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"
#include "sampling/logit_edits.h"
#include "sampling/sampler.h"

namespace baton::sampling {

struct TokenRequest {
  SamplingParams params{};  // bias and penalties have become `edits`
  Uniform uniform = 0;
  std::vector<LogitEdit> edits{};
  // Nothing is sampled: the token is this one (log probabilities of a prompt).
  std::optional<TokenId> given{};
  // Log probabilities with so many of the most likely tokens; absent: none are computed.
  std::optional<uint32_t> top_logprobs{};
};

struct TokenResult {
  TokenId token = 0;
  std::optional<TokenLogprobs> logprobs{};
  bool operator==(const TokenResult&) const = default;
};

// Errors of SampleToken; ids of `edits` and `given` are within the row. The row is left as it is.
absl::StatusOr<TokenResult> ChooseToken(std::span<const float> logits, const TokenRequest& request);
absl::StatusOr<TokenResult> ChooseToken(std::span<const double> logits,
                                        const TokenRequest& request);

}  // namespace baton::sampling

#endif  // BATON_SAMPLING_TOKEN_REQUEST_H_
