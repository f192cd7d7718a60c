#include "kv/block_fork.h"

#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kv/block_demand.h"
#include "kv/block_pool.h"

namespace baton::kv {
namespace {

constexpr uint32_t kBlockSize = 16;

// A pool of two groups, and a request in it whose prompt is computed.
struct Request {
  Request(uint32_t prompt_tokens, uint32_t choices, uint32_t max_tokens)
      : prompt(prompt_tokens), n(choices) {
    const uint32_t blocks = *BlocksNeeded(prompt, n, max_tokens, kBlockSize);
    table = BlockTable(*pool.Take({blocks, blocks}), kBlockSize, 0);
    table.Extend(prompt, BlockState::kFilling);
    table.SetState(BlockState::kLive);
    all = table.blocks();
  }
  uint32_t In(BlockState state) const { return pool.Counts()[static_cast<size_t>(state)]; }

  const uint32_t prompt;
  const uint32_t n;
  BlockPool pool{{200, 200}};
  BlockTable table;
  GroupBlocks all;
};

TEST(ForkBlocksTest, ChoicesShareFullBlocksAndNothingElse) {
  for (const uint32_t prompt : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 40u}) {
    for (const uint32_t n : {1u, 2u, 3u, 8u, 16u}) {
      SCOPED_TRACE(std::to_string(prompt) + " tokens, " + std::to_string(n) + " choices");
      Request r(prompt, n, 20);
      const ForkedBlocks forked = ForkBlocks(std::move(r.table), n, n);
      ASSERT_EQ(forked.tables.size(), n);
      const uint32_t shared = prompt / kBlockSize;
      for (GroupId g = 0; g < 2; ++g) {
        std::set<BlockId> own;
        for (const BlockTable& table : forked.tables) {
          const std::vector<BlockId>& blocks = table.blocks()[g];
          EXPECT_TRUE(std::equal(blocks.begin(), blocks.begin() + shared, r.all[g].begin()));
          for (size_t i = shared; i < blocks.size(); ++i) EXPECT_TRUE(own.insert(blocks[i]).second);
          EXPECT_GE(table.slots(), prompt + 19);
          EXPECT_EQ(table.filled(), prompt);
        }
        EXPECT_EQ(own.size() + shared, r.all[g].size());
      }
      EXPECT_EQ(r.pool.SharesOf({0, r.all[0][0]}), shared == 0 ? 1 : n);
      EXPECT_TRUE(r.pool.CheckIntegrity().ok());
    }
  }
}

TEST(ForkBlocksTest, ThePartlyFilledBlockIsCopiedForAllButTheFirst) {
  Request r(40, 3, 20);
  const ForkedBlocks forked = ForkBlocks(std::move(r.table), 3, 3);
  std::vector<BlockCopy> expected;
  for (const size_t choice : {1, 2}) {
    for (const GroupId g : {0u, 1u}) {
      expected.push_back({g, r.all[g][2], forked.tables[choice].blocks()[g][2]});
    }
  }
  EXPECT_EQ(forked.copies, expected);
  EXPECT_EQ(forked.tables[0].blocks()[0][2], r.all[0][2]);  // where it was
  Request whole(32, 3, 20);
  EXPECT_TRUE(ForkBlocks(std::move(whole.table), 3, 3).copies.empty());
}

TEST(ForkBlocksTest, EachChoiceFreesItsOwnBlocksAndTheLastOneTheShared) {
  Request r(40, 3, 20);  // 2 shared blocks and 2 for each choice
  ForkedBlocks forked = ForkBlocks(std::move(r.table), 3, 3);
  EXPECT_EQ(r.In(BlockState::kLive), 2 * (2 + 3));
  EXPECT_EQ(r.In(BlockState::kReserved), 2 * 3u);
  EXPECT_EQ(r.pool.free_blocks()[0], 192u);
  forked.tables.erase(forked.tables.begin());  // the one whose blocks came first
  EXPECT_EQ(r.pool.free_blocks()[0], 194u);
  EXPECT_TRUE(r.pool.CheckIntegrity().ok());
  forked.tables.pop_back();
  EXPECT_EQ(r.pool.free_blocks()[0], 196u);
  forked.tables.clear();
  EXPECT_EQ(r.pool.free_blocks()[0], 200u);
  EXPECT_TRUE(r.pool.CheckIntegrity().ok());
}

TEST(ForkBlocksTest, ChoicesThatAreOverGetNothing) {
  Request r(40, 8, 20);
  ForkedBlocks forked = ForkBlocks(std::move(r.table), 8, 2);
  EXPECT_EQ(r.pool.free_blocks()[0], 194u);
  EXPECT_EQ(forked.copies.size(), 2u);  // one in each group
  forked = {};
  EXPECT_EQ(r.pool.free_blocks()[0], 200u);
  Request none(40, 8, 20);
  EXPECT_TRUE(ForkBlocks(std::move(none.table), 8, 0).tables.empty());
  EXPECT_EQ(none.pool.free_blocks()[0], 200u);
}

// Issue: at the first generated token n = 8 holds at most 1.25 times the blocks of n = 1.
TEST(ForkBlocksTest, EightChoicesOfALongPromptHoldLittleMoreThanOne) {
  for (uint32_t prompt = 500; prompt <= 520; ++prompt) {
    const auto held = [prompt](uint32_t n) {
      Request r(prompt, n, 256);
      ForkedBlocks forked = ForkBlocks(std::move(r.table), n, n);
      for (BlockTable& table : forked.tables) table.Extend(prompt + 1, BlockState::kLive);
      return r.In(BlockState::kFilling) + r.In(BlockState::kLive);
    };
    EXPECT_LE(held(8), 1.25 * held(1)) << prompt;
  }
}

}  // namespace
}  // namespace baton::kv
