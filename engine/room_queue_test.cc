#include "engine/room_queue.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace baton::engine {
namespace {

using std::chrono::seconds;

struct Desk {
  kv::BlockPool pool{{4}};
  std::vector<kv::BlockLease> leases;
  std::string order;
  RoomQueue queue{pool};

  RoomQueue::ClaimId Ask(char name, int admitted_at, uint32_t blocks) {
    return queue.Add({.admitted_at = Time(seconds(admitted_at)),
                      .blocks = {blocks},
                      .granted =
                          [this, name](kv::BlockLease lease) {
                            order += name;
                            leases.push_back(std::move(lease));
                          },
                      .may_grant = nullptr});
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

TEST(RoomQueueTest, AnOwnerMayHoldBackItsOldest) {
  Desk desk;
  bool open = false;
  desk.queue.Add({.admitted_at = Time(),
                  .blocks = {1},
                  .granted = [&](kv::BlockLease) { desk.order += 'a'; },
                  .may_grant = [&] { return open; }});
  desk.Ask('b', 1, 1);
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "");
  open = true;
  desk.queue.Pump();
  EXPECT_EQ(desk.order, "ab");
}

}  // namespace
}  // namespace baton::engine
