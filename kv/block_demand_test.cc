#include "kv/block_demand.h"

#include <limits>

#include "gtest/gtest.h"

namespace baton::kv {
namespace {

TEST(BlocksNeededTest, TheLastTokenNeedsNoSlot) {
  EXPECT_EQ(*BlocksNeeded(16, 1, 1, 16), 1u);
  EXPECT_EQ(*BlocksNeeded(16, 1, 2, 16), 2u);
  EXPECT_EQ(*BlocksNeeded(15, 1, 2, 16), 1u);
  EXPECT_EQ(*BlocksNeeded(15, 1, 3, 16), 2u);
}

TEST(BlocksNeededTest, ASourceNeedsRoomForThePromptAlone) {
  for (uint64_t prompt = 1; prompt < 70; ++prompt) {
    EXPECT_EQ(*BlocksNeeded(prompt, 1, 1, 16), BlocksFor(prompt, 16)) << prompt;
  }
}

TEST(BlocksNeededTest, ChoicesShareOnlyFullPromptBlocks) {
  // 2 shared blocks; each choice keeps 8 prompt tokens and 24 of its own in 2 blocks.
  EXPECT_EQ(*BlocksNeeded(40, 3, 25, 16), 2u + 3 * 2);
}

TEST(BlocksNeededTest, ARequestBeginsWithABlockOfGrowthForEachChoiceAsFarAsItGrows) {
  const auto at_first = [](uint32_t prompt, uint32_t n, uint32_t sampled, uint32_t max_tokens) {
    return *BlocksNeeded(prompt, n, TokensAtFirst(sampled, max_tokens, 16), 16);
  };
  EXPECT_EQ(at_first(40, 1, 0, 500), 2u + 2);
  EXPECT_EQ(at_first(48, 1, 0, 500), 3u + 1);
  EXPECT_EQ(at_first(40, 3, 0, 500), 2u + 3 * 2);
  EXPECT_EQ(at_first(40, 3, 30, 500), 2u + 3 * 4);
  EXPECT_EQ(at_first(40, 3, 30, 32), 2u + 3 * 3);
  EXPECT_EQ(at_first(40, 1, 0, 1), 3u);
  EXPECT_EQ(TokensAtFirst(UINT32_MAX, UINT32_MAX, 16), UINT32_MAX);
}

TEST(BlocksNeededTest, TooManyIsAnErrorAndNotAWrap) {
  const uint32_t most = std::numeric_limits<uint32_t>::max();
  EXPECT_EQ(BlocksNeeded(1, most, most, 16).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(BlocksNeeded(uint64_t{1} << 60, 1, 1, 16).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace baton::kv
