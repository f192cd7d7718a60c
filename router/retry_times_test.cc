#include "router/retry_times.h"

#include "gtest/gtest.h"

namespace baton::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Time kNow{seconds(1000)};

TEST(RetryTimesTest, FailuresAreFurtherAndFurtherApartUpToTheMost) {
  RetryTimes times(milliseconds(20), milliseconds(100));
  for (const int pause : {20, 40, 80, 100, 100}) {
    EXPECT_EQ(times.AfterFailure(kNow), kNow + milliseconds(pause));
  }
  EXPECT_EQ(times.failures(), 5u);
}

TEST(RetryTimesTest, RefusalsAtOnceForLackOfRoomAreTooAndAreNoFailures) {
  RetryTimes times(milliseconds(20), milliseconds(100));
  for (const int pause : {20, 40, 80, 100, 100}) {
    EXPECT_EQ(times.AfterNoRoom(kNow, kNow), kNow + milliseconds(pause));
  }
  EXPECT_EQ(times.failures(), 0u);
}

TEST(RetryTimesTest, WhatWasWaitedInAQueueIsNotWaitedAgain) {
  RetryTimes times(milliseconds(20), milliseconds(100));
  EXPECT_EQ(times.AfterNoRoom(kNow - milliseconds(15), kNow), kNow + milliseconds(5));
  EXPECT_EQ(times.AfterNoRoom(kNow - seconds(5), kNow), kNow);
  EXPECT_EQ(times.AfterNoRoom(kNow, kNow), kNow + milliseconds(20));  // from the beginning again
}

TEST(RetryTimesTest, AnyNumberOfThemIsTheMost) {
  RetryTimes times(milliseconds(20), seconds(1));
  for (int i = 0; i < 100; ++i) {
    EXPECT_LE(times.AfterFailure(kNow), kNow + seconds(1));
    EXPECT_LE(times.AfterNoRoom(kNow, kNow), kNow + seconds(1));
  }
  EXPECT_EQ(times.AfterFailure(kNow), kNow + seconds(1));
}

}  // namespace
}  // namespace baton::router
