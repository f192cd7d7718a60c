// Everything that is needed to go on generating a request elsewhere: parameters (with the seed) and
// tokens. The rest (RNG counter, stop tail, ...) is derived by replaying the tokens.
// The proto mapping is proto/mapping/decoder_state.{h,cc}; a test fails when a field is added to
// only one of the two.
#ifndef BATON_COMMON_DECODER_STATE_H_
#define BATON_COMMON_DECODER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/time.h"

namespace baton {

using TokenId = int32_t;

// Limits of what a client may ask for; routers refuse more, workers refuse it from peers.
inline constexpr uint32_t kMaxChoices = 16;
inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
inline constexpr size_t kMaxStopTokenIds = 64;
inline constexpr size_t kMaxNamespaceBytes = 64;
inline constexpr float kMaxPenalty = 2;  // presence and frequency: [-kMaxPenalty, kMaxPenalty]
inline constexpr float kMinRepetitionPenalty = 0.01f;
inline constexpr float kMaxRepetitionPenalty = 100;
inline constexpr float kMaxLogitBias = 100;  // [-kMaxLogitBias, kMaxLogitBias]
inline constexpr uint32_t kMaxLogitBiases = 1024;
inline constexpr uint32_t kMaxTopLogprobs = 20;
// Prompt log probabilities of one request, the tops of all positions together.
inline constexpr uint64_t kMaxPromptLogprobs = 500'000;

struct LogitBias {
  TokenId token = 0;
  float bias = 0;
  bool operator==(const LogitBias&) const = default;
};

// Validated by the router (DESIGN section 18); workers validate again what a peer sent.
struct SamplingParams {
  float temperature = 0;  // below 1e-5: greedy
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // (0, 1]
  float min_p = 0;        // [0, 1]
  uint64_t seed = 0;
  float presence_penalty = 0;         // per id that was sampled before
  float frequency_penalty = 0;        // times how often it was sampled
  float repetition_penalty = 1;       // of ids in the prompt or sampled; 1: off
  std::vector<LogitBias> logit_bias;  // each id at most once
  bool operator==(const SamplingParams&) const = default;
};

struct StopParams {
  uint32_t max_tokens = 0;  // >= 1, already capped by what the context leaves
  bool ignore_eos = false;  // the model's end tokens do not end the choice
  std::vector<TokenId> stop_token_ids;
  std::vector<std::string> stop_strings;  // bytes; non-empty each
  // At most max_tokens. The first so many tokens are neither end tokens nor stop ids, and no stop
  // string ends the choice before the last of them.
  uint32_t min_tokens = 0;
  bool include_stop = false;  // the text keeps the stop string, or the stop id's bytes
  bool operator==(const StopParams&) const = default;
};

// Log probabilities are those of the model itself: of the logits before bias, penalties,
// temperature and every cut.
struct TopLogprob {
  TokenId token = 0;
  float logprob = 0;
  bool operator==(const TopLogprob&) const = default;
};

// Of the token at one position, given what comes before it.
struct TokenLogprobs {
  float logprob = 0;
  std::vector<TopLogprob> top;  // the most likely ones: descending, lowest id first among equals
  bool operator==(const TokenLogprobs&) const = default;
};

// How many of the most likely tokens to report beside each one; 0: that one alone; absent: nothing.
struct LogprobParams {
  std::optional<uint32_t> output;  // of sampled tokens
  std::optional<uint32_t> prompt;  // of the prompt's tokens but the first
  bool operator==(const LogprobParams&) const = default;
};

struct ChoiceState {
  std::vector<TokenId> tokens;          // sampled so far, in order
  bool finished = false;                // by these tokens; nothing is sampled after them
  std::vector<TokenLogprobs> logprobs;  // of `tokens`, when asked for
  bool operator==(const ChoiceState&) const = default;
};

struct DecoderState {
  AttemptId attempt;
  SamplingParams sampling;
  StopParams stop;
  std::vector<TokenId> prompt;        // prompt length = prompt.size()
  std::vector<ChoiceState> choices;   // n entries, 1 to kMaxChoices
  std::string cache_namespace;        // opaque digest, root of the prefix-cache hash chain
  Duration age{0};                    // since the router got it, plus its priority's credit
  std::optional<Duration> remaining;  // until the deadline; absent: none
  LogprobParams logprobs;
  // Of prompt[1..], once computed: a prompt's log probabilities are computed once, where it runs.
  std::vector<TokenLogprobs> prompt_logprobs;
  bool operator==(const DecoderState&) const = default;
};

}  // namespace baton

#endif  // BATON_COMMON_DECODER_STATE_H_
