#include "common/sim_executor.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(SimExecutorTest, OneOrderOverAllNodes) {
  SimWorld world;
  SimExecutor a(world, "a");
  SimExecutor b(world, "b");
  std::vector<std::string> ran;
  const TimerHandle late = a.PostAfter(milliseconds(2), [&] { ran.push_back("a at 2"); });
  const TimerHandle early = b.PostAfter(milliseconds(1), [&] { ran.push_back("b at 1"); });
  world.After(milliseconds(1), [&] { ran.push_back("world at 1"); });
  b.Post([&] {
    ran.push_back("b now");
    a.Post([&] { ran.push_back("a from b"); });
  });
  a.Post([&] { ran.push_back("a now"); });
  EXPECT_TRUE(ran.empty());
  EXPECT_TRUE(world.RunUntilIdle());
  EXPECT_EQ(ran, (std::vector<std::string>{"b now", "a now", "a from b", "b at 1", "world at 1",
                                           "a at 2"}));
  EXPECT_EQ(world.now(), Time(milliseconds(2)));
  EXPECT_EQ(world.events_run(), 6u);
}

TEST(SimExecutorTest, EachNodeHasItsOwnClock) {
  SimWorld world;
  SimExecutor ahead(world, "ahead", seconds(1000));
  SimExecutor behind(world, "behind", -seconds(5));
  EXPECT_EQ(ahead.Now() - behind.Now(), seconds(1005));
  Time fired;
  const TimerHandle timer = ahead.PostAt(ahead.Now() + seconds(3), [&] { fired = ahead.Now(); });
  world.RunFor(seconds(2));
  EXPECT_EQ(fired, Time());
  world.RunFor(seconds(1));
  EXPECT_EQ(fired, Time(seconds(1003)));
  EXPECT_EQ(world.now(), Time(seconds(3)));
}

TEST(SimExecutorTest, TimersRunBeforeWhatWasPostedBehindALongTurn) {
  SimWorld world;
  SimExecutor node(world, "node");
  node.set_post_delay(milliseconds(2));
  std::vector<std::string> ran;
  node.Post([&] { ran.push_back("posted first"); });
  node.Post([&] { ran.push_back("posted second"); });
  const TimerHandle timer = node.PostAfter(milliseconds(1), [&] { ran.push_back("timer"); });
  EXPECT_TRUE(world.RunUntilIdle());
  EXPECT_EQ(ran, (std::vector<std::string>{"timer", "posted first", "posted second"}));
}

TEST(SimExecutorTest, ANodeThatStandsStillRunsItsTimersBeforeWhatItHasNotRead) {
  SimWorld world;
  SimExecutor node(world, "node", seconds(100));
  std::vector<std::pair<std::string, Time>> ran;
  const auto run = [&](const char* what) {
    return [&ran, &world, what] { ran.emplace_back(what, world.now()); };
  };
  const TimerHandle early = node.PostAfter(milliseconds(1), run("early"));
  const TimerHandle timer = node.PostAfter(seconds(2), run("timer"));
  world.RunFor(seconds(1));
  node.StandStill(Time(seconds(5)), milliseconds(3));
  node.Post(run("posted"));
  world.At(Time(seconds(5)), [&] { node.Post(run("posted last")); });
  world.RunFor(seconds(10));
  const std::vector<std::pair<std::string, Time>> expected = {
      {"early", Time(milliseconds(1))},
      {"timer", Time(seconds(5))},
      {"posted", Time(milliseconds(5003))},
      {"posted last", Time(milliseconds(5003))}};
  EXPECT_EQ(ran, expected);
}

TEST(SimExecutorTest, WhatWasPostedKeepsItsOrderThroughOverlappingStandstills) {
  SimWorld world;
  SimExecutor node(world, "node");
  std::vector<int> ran;
  node.StandStill(Time(seconds(5)), milliseconds(3));
  node.Post([&] { ran.push_back(1); });
  world.RunFor(seconds(1));
  node.StandStill(Time(seconds(9)), milliseconds(1));
  node.Post([&] { ran.push_back(2); });
  world.RunFor(seconds(7));
  EXPECT_TRUE(ran.empty());
  node.Post([&] { ran.push_back(3); });
  world.RunFor(seconds(2));
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
}

TEST(SimExecutorTest, NothingOfAKilledNodeEverRuns) {
  SimWorld world;
  SimExecutor victim(world, "victim");
  SimExecutor other(world, "other");
  int ran = 0;
  const auto token = std::make_shared<int>(0);
  victim.Post([&, token] {
    ++ran;
    victim.Kill();
    victim.Post([&, token] { ran += 100; });
  });
  victim.Post([&, token] { ran += 100; });
  const TimerHandle timer = victim.PostAfter(seconds(1), [&, token] { ran += 100; });
  other.Post([&] { ++ran; });
  EXPECT_TRUE(world.RunUntilIdle());
  EXPECT_EQ(ran, 2);
  EXPECT_FALSE(victim.alive());
  EXPECT_EQ(token.use_count(), 1);
}

TEST(SimExecutorTest, ACancelledTimerLeavesNoTrace) {
  SimWorld world;
  SimExecutor node(world, "node");
  TimerHandle timer = node.PostAfter(seconds(9), [] { FAIL(); });
  node.Post([&] { timer.Cancel(); });
  EXPECT_TRUE(world.RunUntilIdle());
  EXPECT_EQ(world.now(), Time());
  EXPECT_EQ(world.events_run(), 1u);
}

TEST(SimExecutorTest, RunsTheHookAfterEveryEventAndStopsOnTime) {
  SimWorld world;
  SimExecutor node(world, "node");
  int hooks = 0;
  world.set_after_event([&] { ++hooks; });
  TimerHandle heartbeat;
  std::function<void()> beat = [&] { heartbeat = node.PostAfter(seconds(1), beat); };
  beat();
  world.RunUntil(Time(milliseconds(3500)));
  EXPECT_EQ(hooks, 3);
  EXPECT_EQ(world.now(), Time(milliseconds(3500)));
  EXPECT_FALSE(world.RunUntilIdle(/*max_events=*/10));
  EXPECT_TRUE(world.RunUntilTrue([&] { return hooks == 20; }, Time(seconds(100))));
  EXPECT_FALSE(world.RunUntilTrue([&] { return hooks == 1000; }, Time(seconds(100))));
}

TEST(SimExecutorTest, OffloadedWorkComesBackLaterAndDiesWithItsNode) {
  SimWorld world;
  InlineOffloader offloader(milliseconds(5));
  SimExecutor node(world, "node");
  SimExecutor victim(world, "victim");
  int result = 0;
  const auto token = std::make_shared<int>(7);
  ASSERT_TRUE(Offload<int>(
      offloader, node, [token] { return *token; }, [&](int got) { result = got; }));
  ASSERT_TRUE(Offload<int>(
      offloader, victim, [token] { return *token; }, [](int) { FAIL(); }));
  victim.Kill();
  EXPECT_TRUE(world.RunUntilIdle());
  EXPECT_EQ(result, 7);
  EXPECT_EQ(world.now(), Time(milliseconds(5)));
  EXPECT_EQ(token.use_count(), 1);
  offloader.set_full(true);
  EXPECT_FALSE(offloader.TryRun(
      node, [] {}, [] {}));
}

}  // namespace
}  // namespace baton
