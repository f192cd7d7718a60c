#include "router/best_of.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

// A choice of one token: its own number.
void AddToken(BestOf& best, uint32_t choice, float logprob, bool last = true) {
  v1::Delta delta;
  delta.set_choice(choice);
  delta.set_text(std::to_string(choice));
  delta.add_token_ids(static_cast<int32_t>(choice));
  delta.add_logprobs()->set_logprob(logprob);
  best.Add(delta);
  if (!last) return;
  v1::ChoiceEnd end;
  end.set_choice(choice);
  end.set_finish_reason(choice % 2 == 0 ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
  best.End(end);
}

TEST(BestOfTest, TheHighestSumsComeFirstNumberedAnewWithTheirOwnEnds) {
  BestOf best(4, 2, false);
  AddToken(best, 2, -0.25f, false);
  AddToken(best, 0, -3);
  AddToken(best, 1, -1);
  AddToken(best, 3, -0.75f);
  AddToken(best, 2, -0.25f);
  const std::vector<v1::Choice> choices = best.Take();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].text(), "22");
  EXPECT_EQ(choices[0].index(), 0u);
  EXPECT_EQ(choices[0].finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(choices[1].text(), "3");
  EXPECT_EQ(choices[1].index(), 1u);
  EXPECT_EQ(choices[1].finish_reason(), v1::FINISH_REASON_LENGTH);
}

TEST(BestOfTest, OfEqualOnesTheLowerIndexComesFirst) {
  BestOf best(3, 3, false);
  for (const uint32_t choice : {2, 0, 1}) AddToken(best, choice, -1);
  const std::vector<v1::Choice> choices = best.Take();
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(choices[i].text(), std::to_string(i));
}

TEST(BestOfTest, LogprobsAreReturnedOnlyWhenAskedFor) {
  for (const bool asked : {false, true}) {
    BestOf best(2, 1, asked);
    AddToken(best, 0, -1, false);
    AddToken(best, 0, -1);
    AddToken(best, 1, -3);
    const std::vector<v1::Choice> choices = best.Take();
    EXPECT_EQ(choices[0].token_ids_size(), 2);
    EXPECT_EQ(choices[0].logprobs_size(), asked ? 2 : 0);
  }
}

TEST(BestOfTest, WhatIsNotANumberComesLast) {
  BestOf best(2, 2, false);
  AddToken(best, 0, std::nanf(""));
  AddToken(best, 1, -100);
  EXPECT_EQ(best.Take()[0].text(), "1");
}

// In floats the small ones would vanish beside the large one.
TEST(BestOfTest, SumsAreInDoublePrecision) {
  BestOf best(2, 1, false);
  AddToken(best, 0, -2e8f, false);
  AddToken(best, 1, -2e8f, false);
  for (int i = 0; i < 100; ++i) AddToken(best, 0, -1.0f / 64, false);
  AddToken(best, 0, 0);
  AddToken(best, 1, 0);
  EXPECT_EQ(best.Take()[0].token_ids(0), 1);
}

}  // namespace
}  // namespace baton::router
