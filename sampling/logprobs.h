// Log probabilities of the model's own distribution: softmax of a row of logits as it left the
// model. docs/numerics.md, "Sampling", is the definition.
#ifndef BATON_SAMPLING_LOGPROBS_H_
#define BATON_SAMPLING_LOGPROBS_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"

namespace baton::sampling {

// Of `token` (within the row) and of the `top` most likely ones, all of them when the row is
// shorter. INTERNAL for a row that SampleToken refuses. Thread-safe; the vocabulary is never sorted
// or copied.
absl::StatusOr<TokenLogprobs> LogprobsOf(std::span<const float> logits, TokenId token,
                                         uint32_t top);
absl::StatusOr<TokenLogprobs> LogprobsOf(std::span<const double> logits, TokenId token,
                                         uint32_t top);

}  // namespace baton::sampling

#endif  // BATON_SAMPLING_LOGPROBS_H_
