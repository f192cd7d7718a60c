#include "router/drain_estimate.h"

#include <chrono>

#include "gtest/gtest.h"

namespace baton::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class DrainEstimateTest : public testing::Test {
 protected:
  void Serve(int prompts, Duration apart, uint64_t tokens) {
    for (int i = 0; i < prompts; ++i) {
      now_ += apart;
      drain_.OnFirstToken(now_, tokens);
    }
  }
  double Rate() const { return drain_.TokensPerSecond(now_).value_or(-1); }

  DrainEstimate drain_;
  Time now_{seconds(1000)};
};

TEST_F(DrainEstimateTest, OnlyTimeInWhichSomebodyWaitsCounts) {
  Serve(100, milliseconds(100), 50);
  EXPECT_EQ(Rate(), -1);
  drain_.SetWaiting(now_, true);
  Serve(3, milliseconds(100), 50);
  EXPECT_EQ(Rate(), -1);
  Serve(1, milliseconds(100), 50);
  EXPECT_NEAR(Rate(), 500, 30);
  drain_.SetWaiting(now_, false);
  now_ += seconds(5);
  drain_.SetWaiting(now_, true);
  Serve(8, milliseconds(100), 50);
  EXPECT_NEAR(Rate(), 500, 30);
}

TEST_F(DrainEstimateTest, ItFollowsAChangeAndAStall) {
  drain_.SetWaiting(now_, true);
  Serve(100, milliseconds(100), 50);
  EXPECT_NEAR(Rate(), 500, 50);
  Serve(600, milliseconds(50), 50);
  EXPECT_NEAR(Rate(), 1000, 60);
  now_ += seconds(10);
  EXPECT_LT(Rate(), 450);
}

TEST_F(DrainEstimateTest, AStallIsForgottenWhereSomebodyWaitsOnlyNowAndThen) {
  drain_.SetWaiting(now_, true);
  Serve(5, seconds(2), 50);
  EXPECT_NEAR(Rate(), 25, 5);
  for (int i = 0; i < 600; ++i) {
    drain_.SetWaiting(now_, false);
    Serve(1, milliseconds(99), 50);
    drain_.SetWaiting(now_, true);
    now_ += milliseconds(1);
  }
  EXPECT_EQ(Rate(), -1);  // so that what workers report is taken
}

TEST_F(DrainEstimateTest, WhatWasMeasuredLongAgoIsForgotten) {
  drain_.SetWaiting(now_, true);
  Serve(20, milliseconds(100), 50);
  drain_.SetWaiting(now_, false);
  now_ += seconds(61);
  EXPECT_EQ(Rate(), -1);
  drain_.SetWaiting(now_, true);
  EXPECT_EQ(Rate(), -1);
}

}  // namespace
}  // namespace baton::router
