// Choosing the next token: a pure function of (logit row, parameters, uniform). The same row gives
// the same token on any machine and thread count. docs/numerics.md, "Sampling", is the definition.
#ifndef BATON_SAMPLING_SAMPLER_H_
#define BATON_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"

namespace baton::sampling {

// 64 random bits, read as the fraction bits / 2^64 in [0, 1).
using Uniform = uint64_t;

// The one uniform of (seed, choice, absolute position of the sampled token in its sequence: the
// prompt's tokens count). Philox4x32-10; counter = {position lo, position hi, choice, 'BATN'},
// key = seed, the result is the first two words.
Uniform UniformAt(uint64_t seed, uint32_t choice, uint64_t position);

// `logits` holds one value per token of the vocabulary, -inf for a forbidden token. Parameters are
// valid (DESIGN section 18). Temperature below 1e-5: the largest logit, lowest id among equals.
// INTERNAL when a logit is NaN or +inf, or all are -inf. Thread-safe, no allocation that outlives
// the call.
absl::StatusOr<TokenId> SampleToken(std::span<const float> logits, const SamplingParams& params,
                                    Uniform uniform);
absl::StatusOr<TokenId> SampleToken(std::span<const double> logits, const SamplingParams& params,
                                    Uniform uniform);

// The integer mass with which SampleToken draws each token; 0 outside the set left by top-k, top-p
// and min-p. For tests, log probabilities and tools: SampleToken itself builds no such list.
absl::StatusOr<std::vector<uint64_t>> SamplingMasses(std::span<const float> logits,
                                                     const SamplingParams& params);
absl::StatusOr<std::vector<uint64_t>> SamplingMasses(std::span<const double> logits,
                                                     const SamplingParams& params);

}  // namespace baton::sampling

#endif  // BATON_SAMPLING_SAMPLER_H_
