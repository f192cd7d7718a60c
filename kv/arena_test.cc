#include "kv/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace baton::kv {
namespace {

KvLayout TwoGroups() {
  KvLayout layout;
  layout.groups = {{0}, {32}};
  layout.layers = {{0, {{KvDtype::kF64, KvOrder::kHeadSlotDim, 1, 1}}},
                   {1, {{KvDtype::kF32, KvOrder::kHeadSlotDim, 2, 1}}},
                   {0,
                    {{KvDtype::kF16, KvOrder::kHeadDimSlot, 1, 3},
                     {KvDtype::kF16, KvOrder::kHeadSlotDim, 1, 3}}}};
  return layout;
}

bool AllEqual(std::span<const std::byte> piece, int value) {
  return std::all_of(piece.begin(), piece.end(),
                     [&](std::byte b) { return b == std::byte(value); });
}

class KvArenaTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(PrivateAndShareable, KvArenaTest, testing::Bool());

TEST_P(KvArenaTest, PiecesAreZeroAndDoNotOverlap) {
  auto arena = KvArena::Create(TwoGroups(), {.blocks = {5, 3}, .shareable = GetParam()});
  ASSERT_TRUE(arena.ok()) << arena.status();
  int pieces = 0;
  for (int pass = 0; pass < 2; ++pass) {
    int value = 0;
    for (uint32_t layer = 0; layer < 3; ++layer) {
      const auto& spec = (*arena)->layout().layers[layer];
      for (uint32_t a = 0; a < spec.arenas.size(); ++a) {
        for (BlockId block = 0; block < (*arena)->blocks(spec.group); ++block, ++pieces) {
          auto piece = (*arena)->Piece(layer, a, block);
          ASSERT_EQ(piece.size(), (*arena)->layout().PieceBytes(layer, a));
          EXPECT_TRUE(AllEqual(piece, pass == 0 ? 0 : value));
          std::memset(piece.data(), value++, piece.size());
        }
      }
    }
  }
  EXPECT_EQ(pieces, 2 * (5 + 3 + 5 + 5));
}

TEST_P(KvArenaTest, ZeroBlockTouchesOnlyItsGroupAndBlock) {
  auto arena = KvArena::Create(TwoGroups(), {.blocks = {5, 3}, .shareable = GetParam()});
  ASSERT_TRUE(arena.ok()) << arena.status();
  for (uint32_t layer = 0; layer < 3; ++layer) {
    for (BlockId block : {1, 2}) {
      auto piece = (*arena)->Piece(layer, 0, block);
      std::memset(piece.data(), 7, piece.size());
    }
  }
  (*arena)->ZeroBlock(0, 2);
  EXPECT_TRUE(AllEqual((*arena)->Piece(0, 0, 1), 7));
  EXPECT_TRUE(AllEqual((*arena)->Piece(0, 0, 2), 0));
  EXPECT_TRUE(AllEqual((*arena)->Piece(1, 0, 2), 7));
  EXPECT_TRUE(AllEqual((*arena)->Piece(2, 0, 2), 0));
}

TEST(KvArenaShareTest, PeerReadsTheSameBytesAndCanNeitherShrinkNorWrite) {
  auto arena = KvArena::Create(TwoGroups(), {.blocks = {5, 3}, .shareable = true});
  ASSERT_TRUE(arena.ok()) << arena.status();
  const int peer = dup((*arena)->fd());
  EXPECT_NE(ftruncate(peer, 4096), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, peer, 0), MAP_FAILED);
  const uint64_t bytes = (*arena)->total_bytes();
  void* map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, peer, 0);
  ASSERT_NE(map, MAP_FAILED);
  auto piece = (*arena)->Piece(2, kValueArena, 4);
  std::memset(piece.data(), 9, piece.size());
  const auto region = (*arena)->region(2, kValueArena);
  const uint64_t offset = region.offset + (*arena)->layout().PieceOffset(2, kValueArena, 4);
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(map) + offset, piece.data(), piece.size()), 0);
  munmap(map, bytes);
  close(peer);
}

TEST(KvArenaErrorTest, RefusesWrongBlockCounts) {
  EXPECT_FALSE(KvArena::Create(TwoGroups(), {.blocks = {5}}).ok());
  EXPECT_FALSE(KvArena::Create(TwoGroups(), {.blocks = {5, 0}}).ok());
}

}  // namespace
}  // namespace baton::kv
