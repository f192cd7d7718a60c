#include "kv/block_pool.h"

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
      switch (random.Below(7)) {
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
          if (!leases.empty()) leases[which].SetState(BlockState::kFilling);
          break;
        case 6:
          if (!leases.empty()) leases[which].Truncate(1);
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
