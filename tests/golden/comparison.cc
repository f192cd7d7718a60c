#include "tests/golden/comparison.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace baton::golden {

std::string Comparison::ToString() const {
  std::ostringstream out;
  out << positions << " positions: greedy choice differs in " << mismatches << ", in "
      << clear_mismatches << " of " << clear_positions << " clear ones (widest margin "
      << widest_mismatch << "); largest difference of a logit " << worst_logit << "; mean KL "
      << MeanKl();
  return out.str();
}

void Compare(const ExpectedStep& expected, const std::vector<double>& logits, Comparison& total) {
  const bool clear = expected.Margin() > kClearMargin;
  const bool differs = ArgMax(logits) != expected.top[0].first;
  ++total.positions;
  total.mismatches += differs ? 1 : 0;
  if (differs) total.widest_mismatch = std::max(total.widest_mismatch, expected.Margin());
  total.clear_positions += clear ? 1 : 0;
  total.clear_mismatches += clear && differs ? 1 : 0;
  total.kl_sum += NineOutcomeKl(expected, logits);
  for (const auto& [token, logit] : expected.top) {
    const double difference = std::fabs(logits[static_cast<size_t>(token)] - logit);
    total.worst_logit = std::max(total.worst_logit, difference);
  }
  total.worst_logit =
      std::max(total.worst_logit, std::fabs(LogSumExp(logits) - expected.logsumexp));
}

void CompareCase(const GreedyCase& one, uint32_t chunk, model::ModelHarness& harness,
                 Comparison& total) {
  harness.Restart();
  size_t step = 0;
  harness.RunAll(
      one.TeacherForced(), chunk, static_cast<uint32_t>(one.prompt.size() - 1),
      [&](const std::vector<double>& logits) { Compare(one.steps[step++], logits, total); });
}

}  // namespace baton::golden
