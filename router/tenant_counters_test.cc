#include "router/tenant_counters.h"

#include "gtest/gtest.h"

namespace baton::router {
namespace {

TEST(TenantCountersTest, TheSmallestCounterIsNextAndServiceStaysEqual) {
  TenantCounters counters(10);
  for (const char* tenant : {"a", "b"}) {
    counters.Hold(tenant);
    counters.Join(tenant);
  }
  uint64_t served_a = 0, served_b = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string next = counters.Next();
    const uint64_t tokens = next == "a" ? 100 : 7;
    (next == "a" ? served_a : served_b) += tokens;
    counters.Charge(next, tokens);
  }
  EXPECT_LE(served_a > served_b ? served_a - served_b : served_b - served_a, 100u);
}

TEST(TenantCountersTest, TimeAwayEarnsNothing) {
  TenantCounters counters(10);
  counters.Hold("busy");
  counters.Join("busy");
  counters.Charge("busy", 5000);
  counters.Hold("late");
  counters.Join("late");
  EXPECT_EQ(counters.Of("late"), 5000u);
}

TEST(TenantCountersTest, WhenNobodyWaitsTheLastThatLeftSetsTheLevelWithItsLaterTokens) {
  TenantCounters counters(10);
  counters.Hold("first");
  counters.Join("first");
  counters.Charge("first", 100);
  counters.Leave("first");
  counters.Charge("first", 40);
  counters.Hold("second");
  counters.Join("second");
  EXPECT_EQ(counters.Of("second"), 140u);
}

TEST(TenantCountersTest, ADebtSurvivesBeingIdleAndALevelCounterIsForgotten) {
  TenantCounters counters(10);
  for (const char* tenant : {"debtor", "other", "fresh"}) {
    counters.Hold(tenant);
    counters.Join(tenant);
  }
  counters.Charge("debtor", 900);
  counters.Charge("other", 10);
  counters.Charge("fresh", 30);
  counters.Leave("debtor");
  counters.Release("debtor");
  EXPECT_EQ(counters.Of("debtor"), 900u);
  EXPECT_EQ(counters.size(), 3u);
  counters.Charge("other", 2000);
  counters.Charge("fresh", 1000);
  counters.Leave("fresh");
  counters.Release("fresh");  // the level is 1030 now: the debt is paid, and nobody else is ahead
  EXPECT_EQ(counters.size(), 1u);
  EXPECT_EQ(counters.Of("debtor"), 2010u);
}

TEST(TenantCountersTest, IdleTenantsAreBounded) {
  TenantCounters counters(3);
  counters.Hold("poor");
  counters.Join("poor");
  for (int i = 0; i < 100; ++i) {
    const std::string name = "t" + std::to_string(i);
    counters.Hold(name);
    counters.Join(name);
    counters.Charge(name, 1000 + static_cast<uint64_t>(i));
    counters.Leave(name);
    counters.Release(name);
    EXPECT_LE(counters.size(), 4u);
  }
  EXPECT_EQ(counters.Of("t99"), 1099u);  // the largest debts stay
  EXPECT_EQ(counters.Of("t0"), 0u);
}

TEST(TenantCountersTest, ATenantWithLiveRequestsIsNotForgotten) {
  TenantCounters counters(0);
  counters.Hold("a");
  counters.Hold("a");
  counters.Join("a");
  counters.Leave("a");
  counters.Release("a");
  counters.Charge("a", 5);
  EXPECT_EQ(counters.size(), 1u);
  counters.Release("a");
  EXPECT_EQ(counters.size(), 0u);
}

}  // namespace
}  // namespace baton::router
