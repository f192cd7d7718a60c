#include "sampling/logit_edits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace baton::sampling {
namespace {

TEST(LogitEditsTest, NothingAskedNothingEdited) {
  LogitEditor editor({}, std::vector<TokenId>{1, 2, 3});
  editor.Accept(4);
  EXPECT_TRUE(editor.Edits({}).empty());
}

TEST(LogitEditsTest, PresenceAndFrequencyCountSampledTokensOnly) {
  SamplingParams params;
  params.presence_penalty = 0.5f;
  params.frequency_penalty = 0.25f;
  LogitEditor editor(params, std::vector<TokenId>{1, 2});
  EXPECT_TRUE(editor.Edits({}).empty());
  for (const TokenId token : {2, 7, 2, 2}) editor.Accept(token);
  const std::vector<LogitEdit> expected = {{.token = 2, .penalty = 0.5 + 3 * 0.25},
                                           {.token = 7, .penalty = 0.5 + 0.25}};
  EXPECT_EQ(editor.Edits({}), expected);
  EXPECT_EQ(Edited(2, expected[0]), 0.75);
}

TEST(LogitEditsTest, RepetitionCountsThePromptToo) {
  SamplingParams params;
  params.repetition_penalty = 2;
  LogitEditor editor(params, std::vector<TokenId>{5, 1, 5});
  editor.Accept(9);
  const auto edits = editor.Edits({});
  ASSERT_EQ(edits.size(), 3u);
  for (const LogitEdit& edit : edits) {
    EXPECT_EQ(Edited(3, edit), 1.5);
    EXPECT_EQ(Edited(-3, edit), -6);
    EXPECT_EQ(Edited(0, edit), 0);
  }
}

TEST(LogitEditsTest, BiasComesFirst) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.presence_penalty = 1;
  params.logit_bias = {{3, 4}, {1, -4}};
  LogitEditor editor(params, std::vector<TokenId>{1});
  editor.Accept(3);
  const auto edits = editor.Edits({});
  ASSERT_EQ(edits.size(), 2u);
  EXPECT_EQ(Edited(2, edits[0]), -4);  // (2 - 4) * 2
  EXPECT_EQ(Edited(-2, edits[1]), 0);  // (-2 + 4) / 2 - 1
}

TEST(LogitEditsTest, ForbiddenIdsComeOnceAndWin) {
  SamplingParams params;
  params.logit_bias = {{3, 100}};
  const LogitEditor editor(params, {});
  const auto edits = editor.Edits(std::vector<TokenId>{8, 3, 8});
  ASSERT_EQ(edits.size(), 2u);
  for (const LogitEdit& edit : edits) {
    EXPECT_EQ(Edited(1e30, edit), -std::numeric_limits<double>::infinity());
  }
}

TEST(LogitEditsTest, WhoReplaysTheTokensHasTheSameEdits) {
  SamplingParams params;
  params.presence_penalty = -0.5f;
  params.frequency_penalty = 1.5f;
  params.repetition_penalty = 1.25f;
  params.logit_bias = {{2, 1}, {11, -3}};
  const std::vector<TokenId> prompt = {1, 2, 3, 2};
  LogitEditor first(params, prompt);
  for (int i = 0; i < 20; ++i) {
    first.Accept(i * i % 13);
    LogitEditor second(params, prompt);
    for (int k = 0; k <= i; ++k) second.Accept(k * k % 13);
    EXPECT_EQ(first.Edits({}), second.Edits({}));
  }
}

TEST(LogitEditsTest, NanStaysNan) {
  EXPECT_TRUE(std::isnan(Edited(std::nan(""), {.token = 0, .bias = 1, .repetition = 2})));
}

}  // namespace
}  // namespace baton::sampling
