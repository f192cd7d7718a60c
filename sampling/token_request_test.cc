#include "sampling/token_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sampling/logprobs.h"

namespace baton::sampling {
namespace {

std::vector<float> RandomRow(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(500);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST(TokenRequestTest, SamplesTheEditedRowAndReportsTheModelsOwn) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> row = RandomRow(seed);
    TokenRequest request;
    request.params.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
    request.uniform = UniformAt(seed, 0, 1);
    request.top_logprobs = 3;
    request.edits = {{.token = 3, .bias = 5}, {.token = 200, .forbidden = true}};
    std::vector<float> edited = row;
    for (const LogitEdit& edit : request.edits) {
      edited[edit.token] = static_cast<float>(Edited(edited[edit.token], edit));
    }
    const auto result = ChooseToken(row, request);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->token, *SampleToken(edited, request.params, request.uniform));
    EXPECT_EQ(result->logprobs, *LogprobsOf(row, result->token, 3));
    const std::vector<double> wide(row.begin(), row.end());
    EXPECT_EQ(ChooseToken(wide, request)->logprobs, result->logprobs);
  }
}

TEST(TokenRequestTest, NoLogprobsUnlessAsked) {
  const std::vector<float> row = RandomRow(1);
  EXPECT_EQ(ChooseToken(row, {})->logprobs, std::nullopt);
}

TEST(TokenRequestTest, AGivenTokenIsScoredNotSampled) {
  const std::vector<float> row = RandomRow(2);
  TokenRequest request;
  request.given = 17;
  request.top_logprobs = 0;
  EXPECT_EQ(*ChooseToken(row, request), (TokenResult{17, *LogprobsOf(row, 17, 0)}));
}

TEST(TokenRequestTest, GreedyWithPenaltiesTakesTheLowestIdAmongEquals) {
  const std::vector<float> row = {1, 4, 3, 3};
  TokenRequest request;
  request.edits = {{.token = 1, .penalty = 1}};  // three equals
  EXPECT_EQ(ChooseToken(row, request)->token, 1);
  request.edits = {{.token = 1, .penalty = 1.5}};
  EXPECT_EQ(ChooseToken(row, request)->token, 2);
}

TEST(TokenRequestTest, ANanIsAnInternalError) {
  std::vector<float> row = RandomRow(3);
  row[4] = std::nanf("");
  EXPECT_EQ(ChooseToken(row, {}).status().code(), absl::StatusCode::kInternal);
  TokenRequest given;
  given.given = 0;
  given.top_logprobs = 0;
  EXPECT_EQ(ChooseToken(row, given).status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace baton::sampling
