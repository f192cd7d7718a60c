#include "sampling/logprobs.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "sampling/exponential.h"
#include "sampling/masses.h"

namespace baton::sampling {
namespace {

constexpr size_t kChunk = 1024;

struct Ranked {
  double logit;
  TokenId token;
};

// Descending, lowest id first among equals, at most `top` of them.
template <typename Logit>
std::vector<Ranked> MostLikely(std::span<const Logit> logits, uint32_t top) {
  const auto before = [](const Ranked& a, const Ranked& b) { return a.logit > b.logit; };
  std::vector<Ranked> best;
  best.reserve(size_t{top} + 1);
  for (size_t id = 0; id < logits.size() && top > 0; ++id) {
    const double logit = logits[id];
    if (best.size() == top && !(logit > best.back().logit)) continue;
    const Ranked ranked{logit, static_cast<TokenId>(id)};
    best.insert(std::upper_bound(best.begin(), best.end(), ranked, before), ranked);
    if (best.size() > top) best.pop_back();
  }
  return best;
}

template <typename Logit>
absl::StatusOr<double> MaxOf(std::span<const Logit> logits) {
  constexpr Logit kInfinity = std::numeric_limits<Logit>::infinity();
  Logit max = -kInfinity;
  for (const Logit logit : logits) {
    if (!(logit < kInfinity)) return absl::InternalError("a logit is NaN or infinite");
    max = std::max(max, logit);
  }
  if (max == -kInfinity) return absl::InternalError("all logits are -inf");
  return static_cast<double>(max);
}

template <typename Logit>
absl::StatusOr<TokenLogprobs> Logprobs(std::span<const Logit> logits, TokenId token, uint32_t top) {
  const absl::StatusOr<double> max = MaxOf(logits);
  if (!max.ok()) return max.status();
  double sum = 0;
  double exponentials[kChunk];
  for (size_t at = 0; at < logits.size(); at += kChunk) {
    const std::span<const Logit> chunk = logits.subspan(at, std::min(kChunk, logits.size() - at));
    ExponentialsOf(chunk, *max, std::span(exponentials, chunk.size()));
    for (size_t i = 0; i < chunk.size(); ++i) sum += exponentials[i];
  }
  const double log_sum = LnOf(sum);
  const auto logprob = [&](double logit) { return static_cast<float>((logit - *max) - log_sum); };
  TokenLogprobs out;
  out.logprob = logprob(static_cast<double>(logits[static_cast<size_t>(token)]));
  for (const Ranked& ranked : MostLikely(logits, top)) {
    out.top.push_back({ranked.token, logprob(ranked.logit)});
  }
  return out;
}

}  // namespace

absl::StatusOr<TokenLogprobs> LogprobsOf(std::span<const float> logits, TokenId token,
                                         uint32_t top) {
  return Logprobs(logits, token, top);
}
absl::StatusOr<TokenLogprobs> LogprobsOf(std::span<const double> logits, TokenId token,
                                         uint32_t top) {
  return Logprobs(logits, token, top);
}

}  // namespace baton::sampling
