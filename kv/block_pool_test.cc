#include "kv/block_pool.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"

namespace baton::kv {
namespace {

uint32_t In(const BlockPool& pool, BlockState state) {
  return pool.Counts()[static_cast<size_t>(state)];
}

uint32_t Smallest(const BlockLease& lease) {
  return static_cast<uint32_t>(std::min(lease.blocks()[0].size(), lease.blocks()[1].size()));
}

TEST(BlockPoolTest, ALeaseReturnsItsBlocks) {
  BlockPool pool({4, 2});
  {
    const BlockLease lease = *pool.Take({3, 1});
    EXPECT_EQ(In(pool, BlockState::kReserved), 4u);
    EXPECT_EQ(pool.free_blocks(), (std::vector<uint32_t>{1, 1}));
  }
  EXPECT_EQ(In(pool, BlockState::kFree), 6u);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPoolTest, TakesFromAllGroupsOrFromNone) {
  BlockPool pool({4, 2});
  const absl::StatusOr<BlockLease> lease = pool.Take({1, 3});
  EXPECT_EQ(lease.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(lease.status().message().find("group 1"), std::string_view::npos);
  EXPECT_EQ(In(pool, BlockState::kFree), 6u);
}

TEST(BlockPoolTest, APinQuarantinesBlocksGivenUpUntilItGoes) {
  BlockPool pool({4});
  BlockLease lease = *pool.Take({2});
  BlockPin step = pool.Pin(lease.blocks());
  BlockPin transfer = pool.Pin(lease.blocks());
  lease.Reset();
  EXPECT_EQ(In(pool, BlockState::kQuarantined), 2u);
  EXPECT_FALSE(pool.FitsNow({3}));
  step.Reset();
  EXPECT_EQ(In(pool, BlockState::kQuarantined), 2u);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
  transfer.Reset();
  EXPECT_EQ(In(pool, BlockState::kFree), 4u);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPoolTest, ASharedBlockStaysUntilItsLastHolder) {
  BlockPool pool({4});
  BlockLease first = *pool.Take({3});
  BlockLease second = first.Share(2);
  EXPECT_EQ(In(pool, BlockState::kLive), 2u);
  EXPECT_EQ(pool.SharesOf({0, first.blocks()[0][0]}), 2u);
  first.Reset();
  EXPECT_EQ(In(pool, BlockState::kFree), 2u);
  second.Reset();
  EXPECT_EQ(In(pool, BlockState::kFree), 4u);
}

TEST(BlockPoolTest, TruncateGivesBackTheTail) {
  BlockPool pool({4, 4});
  BlockLease lease = *pool.Take({4, 3});
  lease.Truncate(1);
  EXPECT_EQ(pool.free_blocks(), (std::vector<uint32_t>{3, 3}));
}

TEST(BlockPoolTest, AStateIsOfEachBlock) {
  BlockPool pool({4, 4});
  BlockLease lease = *pool.Take({4, 3});
  lease.SetState(BlockState::kFilling, 1, 3);
  EXPECT_EQ(In(pool, BlockState::kFilling), 4u);
  EXPECT_EQ(pool.StateOf({0, lease.blocks()[0][0]}), BlockState::kReserved);
  EXPECT_EQ(pool.StateOf({1, lease.blocks()[1][2]}), BlockState::kFilling);
  const BlockLease other = lease.Share(2);
  lease.SetState(BlockState::kReserved, 0, 3);  // not of what is shared
  EXPECT_EQ(In(pool, BlockState::kLive), 4u);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPoolTest, BlocksThatAreSplitOffGoByThemselves) {
  BlockPool pool({8, 8});
  BlockLease lease = *pool.Take({6, 5});
  const GroupBlocks all = lease.blocks();
  BlockLease middle = lease.Extract(1, 3);
  EXPECT_EQ(middle.blocks(),
            (GroupBlocks{{all[0][1], all[0][2], all[0][3]}, {all[1][1], all[1][2], all[1][3]}}));
  EXPECT_EQ(lease.blocks(),
            (GroupBlocks{{all[0][0], all[0][4], all[0][5]}, {all[1][0], all[1][4]}}));
  lease.Reset();
  EXPECT_EQ(pool.free_blocks(), (std::vector<uint32_t>{5, 5}));
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(BlockPoolTest, AppendedBlocksAreHeldByOneLease) {
  BlockPool pool({8});
  BlockLease lease = *pool.Take({2});
  BlockLease more = *pool.Take({3});
  const std::vector<BlockId> tail = more.blocks()[0];
  lease.Append(std::move(more));
  ASSERT_EQ(lease.blocks()[0].size(), 5u);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), lease.blocks()[0].begin() + 2));
  EXPECT_EQ(pool.free_blocks()[0], 3u);
  lease.Reset();
  EXPECT_EQ(pool.free_blocks()[0], 8u);
}

TEST(BlockPoolTest, SaysWhenBlocksBecomeFree) {
  BlockPool pool({4});
  int freed = 0;
  pool.SetFreedCallback([&] { ++freed; });
  BlockLease lease = *pool.Take({2});
  const BlockPin pin = pool.Pin({{lease.blocks()[0][0]}});
  lease.Reset();
  EXPECT_EQ(freed, 1);  // the other one is pinned
}

TEST(BlockPoolTest, MovingALeaseOverAnotherReturnsTheOther) {
  BlockPool pool({4});
  BlockLease a = *pool.Take({1});
  BlockLease b = *pool.Take({2});
  a = std::move(b);
  EXPECT_EQ(In(pool, BlockState::kReserved), 2u);
  EXPECT_TRUE(b.empty());  // NOLINT: moved from is empty by contract
}

TEST(BlockPoolTest, StatesAddUpWhateverIsDoneInWhateverOrder) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    BlockPool pool({13, 7});
    std::vector<BlockLease> leases;
    std::vector<BlockPin> pins;
    for (int i = 0; i < 300; ++i) {
      const size_t which = leases.empty() ? 0 : random.Below(leases.size());
      switch (random.Below(9)) {
        case 0:
        case 1: {
          auto lease = pool.Take(
              {static_cast<uint32_t>(random.Below(5)), static_cast<uint32_t>(random.Below(3))});
          if (lease.ok()) leases.push_back(*std::move(lease));
          break;
        }
        case 2:
          if (!leases.empty()) leases.erase(leases.begin() + static_cast<ptrdiff_t>(which));
          break;
        case 3:
          if (!leases.empty()) pins.push_back(pool.Pin(leases[which].blocks()));
          break;
        case 4:
          if (!pins.empty()) pins.erase(pins.begin());
          break;
        case 5:
          if (!leases.empty())
            leases[which].SetState(BlockState::kFilling, 0, Smallest(leases[which]));
          break;
        case 6:
          if (!leases.empty()) leases[which].Truncate(1);
          break;
        case 7:
          if (!leases.empty()) leases.push_back(leases[which].Share(Smallest(leases[which])));
          break;
        case 8:
          if (!leases.empty()) {
            BlockLease part = leases[which].Extract(0, Smallest(leases[which]) / 2);
            leases.back().Append(std::move(part));
          }
          break;
      }
      ASSERT_TRUE(pool.CheckIntegrity().ok()) << pool.CheckIntegrity();
      const BlockCounts counts = pool.Counts();
      ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), 0u), 20u);
    }
  }
}

}  // namespace
}  // namespace baton::kv
