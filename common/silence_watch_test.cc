#include "common/silence_watch.h"

#include <chrono>
#include <memory>
#include <optional>

#include "common/sim_executor.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLimit = seconds(4);

class SilenceWatchTest : public testing::Test {
 protected:
  void Watch() {
    watch_ = std::make_unique<SilenceWatch>(node_, kLimit, [this] {
      silent_at_ = world_.now();
      watch_.reset();
    });
  }
  // The peer says something so long from now.
  void SaysAfter(Duration delay) {
    world_.After(delay, [this] {
      node_.Post([this] {
        if (watch_ != nullptr) watch_->Heard();
      });
    });
  }

  SimWorld world_;
  SimExecutor node_{world_, "node", seconds(77)};
  std::unique_ptr<SilenceWatch> watch_;
  std::optional<Time> silent_at_;
};

TEST_F(SilenceWatchTest, SilenceIsNoticedWhenTheLimitHasPassedSinceTheLastWord) {
  for (const Duration last : {milliseconds(0), milliseconds(1), milliseconds(999),
                              milliseconds(1000), milliseconds(3999)}) {
    Watch();
    const Time begin = world_.now();
    SaysAfter(last);
    world_.RunFor(last + kLimit - Duration(1));
    EXPECT_FALSE(silent_at_.has_value());
    world_.RunFor(Duration(1));
    EXPECT_EQ(silent_at_, begin + last + kLimit);
    silent_at_.reset();
  }
}

TEST_F(SilenceWatchTest, APeerThatSpeaksJustInTimeIsNeverSilent) {
  Watch();
  for (int i = 1; i < 50; ++i) SaysAfter(i * (kLimit - Duration(1)));
  world_.RunFor(50 * (kLimit - Duration(1)));
  EXPECT_FALSE(silent_at_.has_value());
}

// At any moment of the peer's silence, for any time.
TEST_F(SilenceWatchTest, WhatWasSaidWhileWeStoodStillIsReadBeforeItCountsAsSilence) {
  for (const Duration from : {milliseconds(0), milliseconds(10), milliseconds(1000),
                              milliseconds(2500), milliseconds(3000), milliseconds(3999)}) {
    for (const Duration stood : {milliseconds(2000), milliseconds(4000), milliseconds(4001),
                                 milliseconds(60'000), milliseconds(3'600'000)}) {
      Watch();
      world_.RunFor(from);
      node_.StandStill(world_.now() + stood, /*unread=*/milliseconds(500));
      SaysAfter(milliseconds(2));
      world_.RunFor(stood + kLimit);
      EXPECT_FALSE(silent_at_.has_value())
          << ToSeconds(from) << " s, then stood still for " << ToSeconds(stood) << " s";
      silent_at_.reset();
    }
  }
}

TEST_F(SilenceWatchTest, APeerThatSaysNothingAfterwardsIsSilentSoon) {
  Watch();
  world_.RunFor(milliseconds(3500));
  node_.StandStill(Time(seconds(100)), milliseconds(0));
  world_.RunUntil(Time(seconds(101)));
  EXPECT_TRUE(silent_at_.has_value());
  EXPECT_GE(*silent_at_, Time(milliseconds(100'500)));
}

TEST_F(SilenceWatchTest, AProcessWhoseEveryLookIsLateStillNotices) {
  Watch();
  for (int i = 0; i < 15; ++i) {
    node_.StandStill(world_.now() + seconds(10), milliseconds(0));
    world_.RunFor(seconds(10));
    EXPECT_FALSE(silent_at_.has_value());
  }
  node_.StandStill(world_.now() + seconds(10), milliseconds(0));
  world_.RunFor(seconds(10));
  EXPECT_TRUE(silent_at_.has_value());
}

TEST_F(SilenceWatchTest, NothingIsCalledAfterItsEnd) {
  Watch();
  world_.RunFor(seconds(1));
  watch_.reset();
  EXPECT_TRUE(world_.RunUntilIdle());
  EXPECT_FALSE(silent_at_.has_value());
}

}  // namespace
}  // namespace baton
