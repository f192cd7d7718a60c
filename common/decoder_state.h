// Everything that is needed to go on generating a request elsewhere: parameters (with the seed) and
// tokens. The rest (RNG counter, stop tail, ...) is derived by replaying the tokens.
// The proto mapping is proto/mapping/decoder_state.{h,cc}; a test fails when a field is added to
// only one of the two.
#ifndef BATON_COMMON_DECODER_STATE_H_
#define BATON_COMMON_DECODER_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/time.h"

namespace baton {

using TokenId = int32_t;

// Validated by the router (DESIGN section 18); workers validate again what a peer sent.
struct SamplingParams {
  float temperature = 0;  // below 1e-5: greedy
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // (0, 1]
  float min_p = 0;        // [0, 1]
  uint64_t seed = 0;
  bool operator==(const SamplingParams&) const = default;
};

struct StopParams {
  uint32_t max_tokens = 0;  // >= 1, already capped by what the context leaves
  bool ignore_eos = false;  // the model's end tokens do not end the choice
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> stop_strings;  // bytes; non-empty each
  bool operator==(const StopParams&) const = default;
};

struct ChoiceState {
  std::vector<TokenId> tokens;  // sampled so far, in order
  bool finished = false;
  bool operator==(const ChoiceState&) const = default;
};

struct DecoderState {
  AttemptId attempt;
  SamplingParams sampling;
  StopParams stop;
  std::vector<TokenId> prompt;        // prompt length = prompt.size()
  std::vector<ChoiceState> choices;   // n entries
  std::string cache_namespace;        // opaque digest, root of the prefix-cache hash chain
  Duration age{0};                    // since the router got it, plus its priority's credit
  std::optional<Duration> remaining;  // until the deadline; absent: none
  bool operator==(const DecoderState&) const = default;
};

}  // namespace baton

#endif  // BATON_COMMON_DECODER_STATE_H_
