#include "engine/room_queue.h"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics.h"
#include "gtest/gtest.h"
#include "kv/prefix_cache.h"

namespace baton::engine {
namespace {

using std::chrono::seconds;
using Turn = RoomQueue::Turn;

struct Desk {
  kv::BlockPool pool{{4}};
  std::vector<kv::CachedLease> leases;
  std::string order;
  RoomQueue queue{pool, nullptr};

  RoomQueue::ClaimId Ask(char name, int admitted_at, uint32_t blocks) {
    return queue.Add({.admitted_at = Time(seconds(admitted_at)),
                      .blocks = {blocks},
                      .granted =
                          [this, name](kv::CachedLease lease) {
                            order += name;
                            leases.push_back(std::move(lease));
                          },
                      .turn = nullptr});
  }
  // Of an owner that says when.
  void Ask(char name, int admitted_at, uint32_t blocks, const RoomQueue::Turn& turn) {
    queue.Add({.admitted_at = Time(seconds(admitted_at)),
               .blocks = {blocks},
               .granted =
                   [this, name](kv::CachedLease lease) {
                     order += name;
                     leases.push_back(std::move(lease));
                   },
               .turn = [&turn] { return turn; }});
  }
};

TEST(RoomQueueTest, TheOldestIsServedFirst) {
  Desk desk;
  desk.Ask('b', 2, 1);
  desk.Ask('a', 1, 1);
  EXPECT_EQ(desk.order, "");
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "ab");
}

TEST(RoomQueueTest, NobodyOvertakesAnOlderOneThatDoesNotFit) {
  Desk desk;
  desk.Ask('a', 1, 3);
  desk.queue.Pump();
  desk.Ask('b', 2, 2);
  const RoomQueue::ClaimId small = desk.Ask('c', 3, 1);
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "a");
  EXPECT_TRUE(desk.queue.IsWaiting(small));
  desk.leases.clear();
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "abc");
}

TEST(RoomQueueTest, WhoIsGrantedLeavesWhatOthersMayNeedToGrow) {
  Desk desk;
  desk.Ask('a', 1, 3);
  desk.queue.Pump(2);
  EXPECT_EQ(desk.order, "");
  desk.queue.Pump(1);
  EXPECT_EQ(desk.order, "a");
}

TEST(RoomQueueTest, ACancelledClaimMakesWay) {
  Desk desk;
  const RoomQueue::ClaimId big = desk.Ask('a', 1, 4);
  desk.Ask('b', 2, 1);
  desk.queue.Cancel(big);
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "b");
  desk.queue.Cancel(big);  // ignored
  EXPECT_EQ(desk.queue.size(), 0u);
}

TEST(RoomQueueTest, AnOwnerMayStopTheQueue) {
  Desk desk;
  Turn turn = Turn::kStop;
  const Turn now = Turn::kNow;
  desk.Ask('a', 1, 1, turn);
  desk.Ask('b', 2, 1, now);
  desk.Ask('c', 3, 1);
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "");
  turn = Turn::kNow;
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "abc");
}

TEST(RoomQueueTest, WhoseTurnComesLaterIsOvertakenAndKeepsItsRoom) {
  Desk desk;
  Turn turn = Turn::kLater;
  const Turn now = Turn::kNow;
  desk.Ask('a', 1, 2, turn);
  desk.Ask('b', 2, 1, now);
  desk.Ask('c', 3, 2, now);
  desk.Ask('d', 4, 1, now);
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "b");  // d would fit, but c is older
  turn = Turn::kNow;
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "ba");
}

TEST(RoomQueueTest, WhoHasNoTurnOvertakesNobody) {
  Desk desk;
  Turn turn = Turn::kLater;
  const Turn now = Turn::kNow;
  desk.Ask('a', 1, 1, turn);
  desk.Ask('b', 2, 1);
  desk.Ask('c', 3, 1, now);
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "");
  turn = Turn::kNow;
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "abc");
}

TEST(RoomQueueTest, WhatIsFoundInTheCacheNeedsNoRoom) {
  kv::BlockPool pool({4});
  MetricsRegistry registry;
  kv::PrefixCacheMetrics metrics(registry);
  kv::PrefixCache cache({}, pool, metrics);
  const std::vector<TokenId> prompt(48, 5);
  RoomQueue queue(pool, &cache);
  std::vector<kv::CachedLease> granted;
  const auto ask = [&](int admitted_at) {
    queue.Add({.admitted_at = Time(seconds(admitted_at)),
               .blocks = {3},
               .granted = [&](kv::CachedLease lease) { granted.push_back(std::move(lease)); },
               .prefix = cache.Query("space", prompt, 32)});
    queue.Pump();
  };
  ask(1);
  ASSERT_EQ(granted.size(), 1u);
  EXPECT_EQ(granted[0].chain.blocks, 0u);
  ask(2);
  EXPECT_EQ(granted.size(), 1u);  // one block is free
  for (uint32_t i = 0; i < 2; ++i) {
    cache.Store(granted[0].chain, std::span(prompt).first(16), granted[0].lease);
  }
  queue.Pump();
  ASSERT_EQ(granted.size(), 2u);
  EXPECT_EQ(granted[1].chain.blocks, 2u);
  EXPECT_EQ(granted[1].lease.blocks()[0].size(), 3u);
}

}  // namespace
}  // namespace baton::engine
