#include "kv/piece_seals.h"

#include <algorithm>

#include "common/crc32c.h"
#include "gtest/gtest.h"
#include "kv/arena.h"

namespace baton::kv {
namespace {

// Three layers; the second has a group of its own and one arena.
KvLayout Layout() {
  KvLayout layout;
  layout.groups = {{0}, {0}};
  const KvArenaSpec key{KvDtype::kF16, KvOrder::kHeadDimSlot, 2, 8};
  const KvArenaSpec value{KvDtype::kF32, KvOrder::kHeadSlotDim, 2, 8};
  layout.layers = {{0, {key, value}}, {1, {value}}, {0, {key, value}}};
  return layout;
}

class PieceSealsTest : public testing::Test {
 protected:
  PieceSealsTest() {
    KvArena::Options options;
    options.blocks = {3, 2};
    arena_ = *KvArena::Create(Layout(), options);
  }
  void Write(uint32_t layer, uint32_t arena, BlockId block, int value) {
    const auto piece = arena_->Piece(layer, arena, block);
    std::fill(piece.begin(), piece.end(), static_cast<std::byte>(value));
  }
  uint32_t CrcNow(uint32_t layer, uint32_t arena, BlockId block) const {
    return Crc32c(static_cast<const KvArena&>(*arena_).Piece(layer, arena, block));
  }

  std::unique_ptr<KvArena> arena_;
  PieceSeals seals_{Layout(), {3, 2}};
};

TEST_F(PieceSealsTest, ASealIsTheCrcOfEachPieceOfTheLayer) {
  Write(0, 0, 2, 5);
  Write(0, 1, 2, 6);
  seals_.Seal(arena_->view(), 0, 2);
  EXPECT_EQ(seals_.Crc(0, 0, 2), CrcNow(0, 0, 2));
  EXPECT_EQ(seals_.Crc(0, 1, 2), CrcNow(0, 1, 2));
  EXPECT_NE(CrcNow(0, 0, 2), CrcNow(0, 1, 2));
  EXPECT_FALSE(seals_.Crc(0, 0, 1).has_value());
  EXPECT_FALSE(seals_.Crc(2, 0, 2).has_value());
}

TEST_F(PieceSealsTest, ASealStaysUntilItIsBrokenOrMadeAgain) {
  seals_.Seal(arena_->view(), 1, 0);
  const auto before = seals_.Crc(1, 0, 0);
  Write(1, 0, 0, 9);
  EXPECT_EQ(seals_.Crc(1, 0, 0), before);
  seals_.Seal(arena_->view(), 1, 0);
  EXPECT_EQ(seals_.Crc(1, 0, 0), CrcNow(1, 0, 0));
  EXPECT_NE(seals_.Crc(1, 0, 0), before);
  seals_.Break(1, 0);
  EXPECT_FALSE(seals_.Crc(1, 0, 0).has_value());
}

TEST_F(PieceSealsTest, BreakingABlockBreaksTheLayersOfItsGroupOnly) {
  for (const uint32_t layer : {0u, 1u, 2u}) seals_.Seal(arena_->view(), layer, 1);
  seals_.BreakBlock(0, 1);
  EXPECT_FALSE(seals_.Crc(0, 1, 1).has_value());
  EXPECT_TRUE(seals_.Crc(1, 0, 1).has_value());
  EXPECT_FALSE(seals_.Crc(2, 0, 1).has_value());
}

}  // namespace
}  // namespace baton::kv
