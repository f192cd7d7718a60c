#include "kv/block_table.h"

#include <utility>

#include "gtest/gtest.h"

namespace baton::kv {
namespace {

TEST(BlockTableTest, ExtendNamesEachBlockOnceAtItsFirstSlot) {
  BlockPool pool({8, 8});
  BlockTable table(*pool.Take({4, 3}), 16, 0);
  EXPECT_EQ(table.slots(), 48u);
  EXPECT_EQ(table.Extend(1, BlockState::kFilling).size(), 2u);  // one of each group
  EXPECT_TRUE(table.Extend(16, BlockState::kFilling).empty());
  EXPECT_EQ(table.Extend(33, BlockState::kFilling).size(), 4u);
  EXPECT_EQ(table.filled(), 33u);
}

TEST(BlockTableTest, WhatWasReceivedIsNotZeroed) {
  BlockPool pool({8});
  BlockTable table(*pool.Take({3}), 16, 20);
  EXPECT_TRUE(table.Extend(32, BlockState::kFilling).empty());
  const std::vector<BlockRef> touched = table.Extend(33, BlockState::kFilling);
  ASSERT_EQ(touched.size(), 1u);
  EXPECT_EQ(touched[0].block, table.blocks()[0][2]);
}

TEST(BlockTableTest, OnlyBlocksThatHoldSomethingLeaveTheReservation) {
  BlockPool pool({8, 8});
  const auto in = [&pool](BlockState state) { return pool.Counts()[static_cast<size_t>(state)]; };
  BlockTable table(*pool.Take({4, 4}), 16, 0);
  table.Extend(17, BlockState::kFilling);
  EXPECT_EQ(in(BlockState::kFilling), 4u);
  EXPECT_EQ(in(BlockState::kReserved), 4u);
  table.SetState(BlockState::kLive);
  EXPECT_EQ(in(BlockState::kLive), 4u);
  table.Extend(33, BlockState::kLive);
  EXPECT_EQ(in(BlockState::kLive), 6u);
  EXPECT_EQ(in(BlockState::kReserved), 2u);
}

TEST(BlockTableTest, PrefixEndsWithTheBlockOfTheLastSlot) {
  BlockPool pool({8});
  BlockTable table(*pool.Take({3}), 16, 0);
  EXPECT_EQ(table.Prefix(16)[0].size(), 1u);
  EXPECT_EQ(table.Prefix(17)[0].size(), 2u);
}

TEST(BlockTableTest, TruncateZeroesWholeBlocksAgain) {
  BlockPool pool({8});
  BlockTable table(*pool.Take({3}), 16, 0);
  table.Extend(40, BlockState::kFilling);
  table.Truncate(20);
  EXPECT_TRUE(table.Extend(32, BlockState::kFilling).empty());
  EXPECT_EQ(table.Extend(33, BlockState::kFilling).size(), 1u);
}

}  // namespace
}  // namespace baton::kv
