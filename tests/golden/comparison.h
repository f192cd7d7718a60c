// How close a model under test comes to the oracle over many positions.
#ifndef BATON_TESTS_GOLDEN_COMPARISON_H_
#define BATON_TESTS_GOLDEN_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/model_harness.h"
#include "tests/golden/oracle.h"

namespace baton::golden {

struct Comparison {
  size_t positions = 0;
  size_t clear_positions = 0;   // the oracle's margin is above kClearMargin
  size_t clear_mismatches = 0;  // of these, another greedy choice
  size_t mismatches = 0;        // of all positions
  double widest_mismatch = 0;   // the oracle's largest margin at a mismatch
  double worst_logit = 0;       // largest difference of a listed logit or logsumexp
  double kl_sum = 0;            // over nine outcomes

  double MeanKl() const { return kl_sum / static_cast<double>(positions); }
  std::string ToString() const;
};

inline constexpr double kClearMargin = 0.5;

void Compare(const ExpectedStep& expected, const std::vector<double>& logits, Comparison& total);

// Teacher-forces one case, in passes of `chunk` rows, and compares each step.
void CompareCase(const GreedyCase& one, uint32_t chunk, model::ModelHarness& harness,
                 Comparison& total);

}  // namespace baton::golden

#endif  // BATON_TESTS_GOLDEN_COMPARISON_H_
