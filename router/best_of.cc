#include "router/best_of.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace baton::router {

BestOf::BestOf(uint32_t choices, size_t keep, bool with_logprobs)
    : choices_(choices), keep_(keep), with_logprobs_(with_logprobs) {}

void BestOf::Add(v1::Delta delta) {
  Scored& scored = choices_.at(delta.choice());
  for (const v1::TokenLogprob& one : delta.logprobs()) {
    // What is not a number has no place in an order.
    scored.score += std::isnan(one.logprob()) ? -std::numeric_limits<double>::infinity()
                                              : double{one.logprob()};
  }
  scored.choice.mutable_text()->append(delta.text());
  scored.choice.mutable_token_ids()->MergeFrom(delta.token_ids());
  if (!with_logprobs_) return;
  for (v1::TokenLogprob& one : *delta.mutable_logprobs()) {
    *scored.choice.add_logprobs() = std::move(one);
  }
}

void BestOf::End(const v1::ChoiceEnd& end) {
  choices_.at(end.choice()).choice.set_finish_reason(end.finish_reason());
}

std::vector<v1::Choice> BestOf::Take() {
  std::stable_sort(choices_.begin(), choices_.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  std::vector<v1::Choice> best;
  for (size_t i = 0; i < std::min(keep_, choices_.size()); ++i) {
    best.push_back(std::move(choices_[i].choice));
    best.back().set_index(static_cast<uint32_t>(i));
  }
  return best;
}

}  // namespace baton::router
