#include "kv/sliding_windows.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"
#include "kv/block_demand.h"
#include "kv/block_fork.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"

namespace baton::kv {
namespace {

constexpr uint32_t kSize = 16;
constexpr GroupId kSlides = 1;  // group 0 sees all

KvLayout LayoutOf(uint32_t window) {
  KvLayout layout;
  layout.block_size = kSize;
  layout.groups = {{0}, {window}};
  return layout;
}

size_t Held(const BlockTable& table) {
  const std::vector<BlockId>& places = table.blocks()[kSlides];
  return places.size() - static_cast<size_t>(std::ranges::count(places, kNoBlock));
}

// A sequence of one choice in a pool of its own.
struct Sequence {
  Sequence(uint32_t window, uint32_t step, uint32_t tokens, uint32_t filled = 0)
      : windows(LayoutOf(window), step) {
    const BlockPlaces places = *PlacesNeeded(tokens, 1, 1, kSize);
    most = windows.Needed(places, filled, 2)[kSlides];
    BlockLease lease = *pool.Take(windows.Needed(places, filled, 2));
    windows.Place(places, filled, lease);
    table = BlockTable(std::move(lease), kSize, filled);
  }
  // Runs them, and everything that it reads and writes is there.
  void Step(uint32_t tokens) {
    const uint32_t begin = table.filled();
    table.Extend(begin + tokens, BlockState::kFilling);
    const GroupBlocks prefix = table.Prefix(begin + tokens);
    for (uint32_t i = windows.FirstSeen(kSlides, begin); i < prefix[kSlides].size(); ++i) {
      EXPECT_NE(prefix[kSlides][i], kNoBlock) << "place " << i << " at " << begin;
    }
    EXPECT_EQ(std::ranges::count(prefix[0], kNoBlock), 0);
    table.Slide(windows);
    for (uint32_t i = 0; i < windows.FirstSeen(kSlides, begin + tokens); ++i) {
      EXPECT_EQ(table.blocks()[kSlides][i], kNoBlock) << "place " << i << " behind " << begin;
    }
    EXPECT_LE(Held(table), most);
    EXPECT_TRUE(pool.CheckIntegrity().ok()) << pool.CheckIntegrity();
  }
  uint32_t In(BlockState state) const { return pool.Counts()[static_cast<size_t>(state)]; }

  BlockPool pool{{100, 100}};
  SlidingWindows windows;
  BlockTable table;
  uint32_t most = 0;
};

TEST(SlidingWindowsTest, ATokenSeesItselfAndTheWindowBeforeIt) {
  const auto first = [](uint32_t window, uint32_t position) {
    return SlidingWindows(LayoutOf(window), 1).FirstSeen(kSlides, position);
  };
  EXPECT_EQ(first(1, 15), 0u);
  EXPECT_EQ(first(1, 16), 1u);
  EXPECT_EQ(first(15, 30), 1u);  // 16 is the first of 15
  EXPECT_EQ(first(16, 30), 0u);
  EXPECT_EQ(first(16, 31), 1u);
  EXPECT_EQ(first(17, 31), 0u);
  EXPECT_EQ(first(17, 32), 1u);
  EXPECT_EQ(first(48, 62), 0u);
  EXPECT_EQ(first(48, 63), 1u);
  EXPECT_EQ(first(UINT32_MAX, UINT32_MAX - 1), 0u);
  EXPECT_EQ(SlidingWindows(LayoutOf(48), 1).FirstSeen(0, 500), 0u);
}

TEST(SlidingWindowsTest, WithoutOneNothingIsDifferent) {
  for (const SlidingWindows& windows : {SlidingWindows(), SlidingWindows(LayoutOf(0), 64)}) {
    EXPECT_FALSE(windows.any());
    EXPECT_EQ(windows.Needed({10, 3, 2}, 0, 2), (std::vector<uint32_t>{16, 16}));
    BlockPool pool({8, 8});
    BlockTable table(*pool.Take({3, 3}), kSize, 40);
    const GroupBlocks before = table.blocks();
    table.Slide(windows);
    EXPECT_EQ(table.blocks(), before);
  }
}

TEST(SlidingWindowsTest, DemandHasABoundThatNoLengthMoves) {
  // 48 + 64 - 1 positions in a row: at most 8 blocks.
  const SlidingWindows windows(LayoutOf(48), 64);
  EXPECT_EQ(windows.Needed({7, 1, 1}, 0, 2), (std::vector<uint32_t>{8, 8}));
  EXPECT_EQ(windows.Needed({100, 1, 1}, 0, 2), (std::vector<uint32_t>{101, 9}));
  EXPECT_EQ(windows.Needed({1000, 2, 100}, 0, 2), (std::vector<uint32_t>{1200, 24}));
  EXPECT_EQ(SlidingWindows(LayoutOf(1), 1).Needed({9, 1, 9}, 0, 2)[kSlides], 2u);
  // Of a prompt that is there: from position 1600 - 47 on.
  EXPECT_EQ(windows.Needed({100, 1, 2}, 1600, 2), (std::vector<uint32_t>{102, 3 + 2}));
}

TEST(SlidingWindowsTest, BlocksThatNobodyCanSeeServeAgainAndThenAreFree) {
  Sequence s(48, 16, 160);
  EXPECT_EQ(s.most, 5u);
  EXPECT_EQ(s.pool.free_blocks()[kSlides], 95u);
  for (uint32_t i = 0; i < 3; ++i) s.Step(16);
  EXPECT_EQ(Held(s.table), 5u);
  EXPECT_EQ(s.In(BlockState::kFilling), 6u);
  s.Step(16);  // the next token is the 65th: it sees from the 18th on
  EXPECT_EQ(s.table.blocks()[kSlides][0], kNoBlock);
  EXPECT_NE(s.table.blocks()[kSlides][5], kNoBlock);
  EXPECT_EQ(s.In(BlockState::kFilling), 4u + 3);
  for (uint32_t i = 4; i < 10; ++i) s.Step(16);
  EXPECT_EQ(Held(s.table), 3u);
  EXPECT_EQ(s.pool.free_blocks(), (std::vector<uint32_t>{90, 97}));
}

TEST(SlidingWindowsTest, ABlockUsedAgainIsNamedToBeZeroed) {
  Sequence s(16, 16, 80);
  for (uint32_t i = 0; i < 4; ++i) s.Step(16);
  const std::vector<BlockRef> touched = s.table.Extend(80, BlockState::kFilling);
  ASSERT_EQ(touched.size(), 2u);
  EXPECT_EQ(touched[1], (BlockRef{kSlides, s.table.blocks()[kSlides][4]}));
}

TEST(SlidingWindowsTest, AReceivedPromptHasOnlyWhatIsStillSeen) {
  for (const uint32_t window : {1u, 15u, 16u, 17u, 48u, 1000u}) {
    Sequence s(window, 64, 150, 150);
    const std::vector<BlockId>& places = s.table.blocks()[kSlides];
    for (uint32_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(places[i] == kNoBlock, i < s.windows.FirstSeen(kSlides, 150)) << window;
    }
    const size_t held = Held(s.table);
    s.table.Slide(s.windows);
    EXPECT_EQ(Held(s.table), held);
  }
}

TEST(SlidingWindowsTest, APinHoldsWhatSlidOutUntilItIsGone) {
  Sequence s(16, 64, 64);
  s.table.Extend(64, BlockState::kFilling);
  BlockPin pin = s.pool.Pin(s.table.blocks());
  s.table.Slide(s.windows);
  EXPECT_EQ(s.In(BlockState::kQuarantined), 3u);
  pin.Reset();
  EXPECT_EQ(s.pool.free_blocks(), (std::vector<uint32_t>{96, 99}));
}

TEST(SlidingWindowsTest, ChoicesLetGoOfThePromptOneByOne) {
  const SlidingWindows windows(LayoutOf(17), 64);
  const BlockPlaces places = *PlacesNeeded(40, 2, 60, kSize);
  BlockPool pool({20, 20});
  BlockLease lease = *pool.Take(windows.Needed(places, 40, 2));
  windows.Place(places, 40, lease);
  ForkedBlocks forked = ForkBlocks(BlockTable(std::move(lease), kSize, 40), 2, 2);
  ASSERT_EQ(forked.copies.size(), 2u);
  BlockTable& a = forked.tables[0];
  BlockTable& b = forked.tables[1];
  EXPECT_EQ(a.blocks()[kSlides][0], kNoBlock);
  const BlockId shared = a.blocks()[kSlides][1];
  EXPECT_EQ(b.blocks()[kSlides][1], shared);
  EXPECT_EQ(pool.SharesOf({kSlides, shared}), 2u);
  a.Extend(48, BlockState::kLive);
  a.Slide(windows);
  EXPECT_EQ(a.blocks()[kSlides][1], kNoBlock);
  EXPECT_EQ(pool.SharesOf({kSlides, shared}), 1u);
  EXPECT_EQ(b.blocks()[kSlides][1], shared);
  b.Extend(48, BlockState::kLive);
  b.Slide(windows);
  EXPECT_EQ(pool.StateOf({kSlides, shared}), BlockState::kFree);
  EXPECT_TRUE(pool.CheckIntegrity().ok());
}

TEST(SlidingWindowsTest, EveryStepHasWhatItReadsAndWrites) {
  SeededRandom random(20261201);
  for (const uint32_t window : {1u, 2u, 15u, 16u, 17u, 31u, 32u, 33u, 48u, 200u}) {
    for (const uint32_t step : {1u, 2u, 15u, 16u, 17u, 64u}) {
      SCOPED_TRACE(std::to_string(window) + " in steps of " + std::to_string(step));
      const auto tokens = static_cast<uint32_t>(1 + random.Below(400));
      Sequence s(window, step, tokens);
      while (s.table.filled() < tokens) {
        s.Step(std::min(static_cast<uint32_t>(1 + random.Below(step)), tokens - s.table.filled()));
      }
      const uint32_t seen =
          tokens / kSize + (tokens % kSize > 0 ? 1 : 0) - s.windows.FirstSeen(kSlides, tokens);
      EXPECT_EQ(Held(s.table), seen);
      s.table = BlockTable();
      EXPECT_EQ(s.pool.free_blocks(), s.pool.capacity());
    }
  }
}

// Parts longer than what they hold, as of choices that are computed again.
TEST(SlidingWindowsTest, SoHasEveryStepOfAChoiceAfterTheFork) {
  for (const uint32_t window : {1u, 15u, 16u, 17u, 48u}) {
    for (const uint32_t step : {1u, 7u, 16u, 64u}) {
      SCOPED_TRACE(std::to_string(window) + " in steps of " + std::to_string(step));
      Sequence s(window, step, 1);
      s.table = BlockTable();
      const BlockPlaces places = *PlacesNeeded(100, 3, 150, kSize);
      BlockLease lease = *s.pool.Take(s.windows.Needed(places, 0, 2));
      s.windows.Place(places, 0, lease);
      s.most = s.windows.Needed(places, 0, 2)[kSlides];
      s.table = BlockTable(std::move(lease), kSize, 0);
      while (s.table.filled() < 100) s.Step(std::min(step, 100 - s.table.filled()));
      ForkedBlocks forked = ForkBlocks(std::move(s.table), 3, 3);
      for (BlockTable& choice : forked.tables) {
        s.table = std::move(choice);
        while (s.table.filled() < 249) s.Step(std::min(step, 249 - s.table.filled()));
      }
    }
  }
}

}  // namespace
}  // namespace baton::kv
