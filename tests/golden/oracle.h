// The published expectations for SmolLM2-135M-Instruct (a float64 forward pass on the same file)
// and the comparisons that the goldens make with them.
#ifndef BATON_TESTS_GOLDEN_ORACLE_H_
#define BATON_TESTS_GOLDEN_ORACLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/decoder_state.h"

namespace baton::golden {

// The oracle's eight largest logits at one position, largest first.
struct ExpectedStep {
  std::vector<std::pair<TokenId, double>> top;
  double logsumexp = 0;

  double Margin() const { return top[0].second - top[1].second; }
};

struct GreedyCase {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;
  std::vector<ExpectedStep> steps;  // one per token of `greedy`

  // The prompt and every greedy token that a later step depends on.
  std::vector<TokenId> TeacherForced() const;
};

struct ExpectedLayer {
  int after_layer = 0;  // -1: the embedding. The last one has passed the final norm.
  std::vector<double> first16;
  double norm = 0;
};

struct LayersCase {
  std::vector<TokenId> prompt;
  std::vector<ExpectedLayer> layers;  // at the last position
};

struct PerplexityCase {
  std::string text_path;
  uint32_t tokens = 0;
  uint32_t window = 0;  // each window is scored from its second token
  double perplexity = 0;
};

// From `folder`/smollm2-135m-instruct-q4_1_*.json. Shortest case first.
absl::StatusOr<std::vector<GreedyCase>> ReadGreedyCases(const std::string& folder);
absl::StatusOr<LayersCase> ReadLayersCase(const std::string& folder);
absl::StatusOr<std::vector<PerplexityCase>> ReadPerplexityCases(const std::string& folder);

double LogSumExp(const std::vector<double>& logits);
TokenId ArgMax(const std::vector<double>& logits);  // lowest id among equals

// KL(oracle || model) over nine outcomes: the eight listed tokens and all others together.
double NineOutcomeKl(const ExpectedStep& expected, const std::vector<double>& logits);
// KL(expected || actual) over the whole vocabulary.
double FullKl(const std::vector<double>& expected, const std::vector<double>& actual);

}  // namespace baton::golden

#endif  // BATON_TESTS_GOLDEN_ORACLE_H_
