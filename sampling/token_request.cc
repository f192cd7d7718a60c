#include "sampling/token_request.h"

#include <utility>

#include "common/status_macros.h"
#include "sampling/logprobs.h"

namespace baton::sampling {
namespace {

template <typename Logit>
absl::StatusOr<TokenId> Sample(std::span<const Logit> logits, const TokenRequest& request) {
  if (request.given.has_value()) return *request.given;
  if (request.edits.empty()) return SampleToken(logits, request.params, request.uniform);
  std::vector<Logit> row(logits.begin(), logits.end());
  for (const LogitEdit& edit : request.edits) {
    Logit& logit = row[static_cast<size_t>(edit.token)];
    logit = static_cast<Logit>(Edited(static_cast<double>(logit), edit));
  }
  return SampleToken(std::span<const Logit>(row), request.params, request.uniform);
}

template <typename Logit>
absl::StatusOr<TokenResult> Choose(std::span<const Logit> logits, const TokenRequest& request) {
  TokenResult result;
  BATON_ASSIGN_OR_RETURN(result.token, Sample(logits, request));
  if (!request.top_logprobs.has_value()) return result;
  BATON_ASSIGN_OR_RETURN(result.logprobs, LogprobsOf(logits, result.token, *request.top_logprobs));
  return result;
}

}  // namespace

absl::StatusOr<TokenResult> ChooseToken(std::span<const float> logits,
                                        const TokenRequest& request) {
  return Choose(logits, request);
}
absl::StatusOr<TokenResult> ChooseToken(std::span<const double> logits,
                                        const TokenRequest& request) {
  return Choose(logits, request);
}

}  // namespace baton::sampling
