// What parameters and history do to a row of logits before a token is chosen. Sparse: only ids that
// a bias names, that the sequence has seen or that may not come. docs/numerics.md, "Sampling", is
// the definition.
#ifndef BATON_SAMPLING_LOGIT_EDITS_H_
#define BATON_SAMPLING_LOGIT_EDITS_H_

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "common/decoder_state.h"

namespace baton::sampling {

struct LogitEdit {
  TokenId token = 0;
  bool forbidden = false;
  float bias = 0;
  float repetition = 1;  // penalty: above 1 makes the token less likely
  double penalty = 0;    // presence and frequency together
  bool operator==(const LogitEdit&) const = default;
};

// Bias first, then repetition (a positive logit is divided by it, any other multiplied), then the
// penalty is taken off. Forbidden: -infinity. NaN stays NaN.
double Edited(double logit, const LogitEdit& edit);

// Follows one choice. A function of parameters, prompt and sampled tokens alone: who takes the
// choice over replays them. Not thread-safe.
class LogitEditor {
 public:
  LogitEditor(const SamplingParams& params, std::span<const TokenId> prompt);

  void Accept(TokenId sampled);

  // For the next row, ascending ids, each once; empty when nothing is to be done. `forbidden`: ids
  // that may not come next, any order.
  std::vector<LogitEdit> Edits(std::span<const TokenId> forbidden) const;

 private:
  struct Entry {
    float bias = 0;
    bool seen = false;     // in the prompt or sampled
    uint32_t sampled = 0;  // how often
  };

  const float presence_;
  const float frequency_;
  const float repetition_;
  std::map<TokenId, Entry> entries_;
};

}  // namespace baton::sampling

#endif  // BATON_SAMPLING_LOGIT_EDITS_H_
