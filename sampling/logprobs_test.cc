#include "sampling/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace baton::sampling {
namespace {

// By the definition, in long double and with a full sort.
TokenLogprobs BySorting(const std::vector<float>& logits, TokenId token, uint32_t top) {
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  const auto logprob = [&](size_t id) {
    return static_cast<float>(static_cast<long double>(logits[id]) - std::log(sum));
  };
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  TokenLogprobs out{logprob(token), {}};
  for (size_t i = 0; i < std::min<size_t>(top, order.size()); ++i) {
    out.top.push_back({order[i], logprob(order[i])});
  }
  return out;
}

TEST(LogprobsTest, AreThoseOfAFullSort) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal(0, 5);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> logits(1 + random() % 4000);
    for (float& logit : logits) {
      logit = normal(random);
      if (round % 3 == 0) logit = std::round(logit);  // ties
    }
    const auto token = static_cast<TokenId>(random() % logits.size());
    const auto top = static_cast<uint32_t>(random() % 25);
    const auto actual = LogprobsOf(logits, token, top);
    ASSERT_TRUE(actual.ok());
    const TokenLogprobs expected = BySorting(logits, token, top);
    EXPECT_NEAR(actual->logprob, expected.logprob, 2e-6 + 2e-7 * std::abs(expected.logprob));
    ASSERT_EQ(actual->top.size(), expected.top.size());
    for (size_t i = 0; i < expected.top.size(); ++i) {
      EXPECT_EQ(actual->top[i].token, expected.top[i].token);
      EXPECT_NEAR(actual->top[i].logprob, expected.top[i].logprob, 2e-6);
    }
    const std::vector<double> wide(logits.begin(), logits.end());
    EXPECT_EQ(*LogprobsOf(wide, token, top), *actual);
  }
}

TEST(LogprobsTest, OfTheOnlyTokenIsZero) {
  const std::vector<float> one = {-17};
  EXPECT_EQ(*LogprobsOf(one, 0, 20), (TokenLogprobs{0, {{0, 0}}}));
}

TEST(LogprobsTest, AForbiddenTokenHasMinusInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, -kInfinity, 1};
  const TokenLogprobs actual = *LogprobsOf(logits, 1, 2);
  EXPECT_EQ(actual.logprob, -kInfinity);
  EXPECT_EQ(actual.top[0].token, 0);
  EXPECT_EQ(actual.top[1].token, 2);
  EXPECT_FLOAT_EQ(actual.top[0].logprob, std::log(0.5f));
}

TEST(LogprobsTest, RowsThatAreNoDistributionAreInternalErrors) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& logits : {std::vector<float>{0, std::nanf("")}, std::vector<float>{0, kInfinity},
                             std::vector<float>{-kInfinity, -kInfinity}}) {
    EXPECT_EQ(LogprobsOf(logits, 0, 1).status().code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace baton::sampling
