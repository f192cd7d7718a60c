#include "kv/layout.h"

#include <gtest/gtest.h>

namespace baton::kv {
namespace {

KvLayout Llama() {
  return MakeUniformLayout({.layers = 30, .kv_heads = 3, .head_dim = 64, .block_size = 16},
                           KvDtype::kF16, KvOrder::kHeadDimSlot, KvOrder::kHeadSlotDim);
}

KvLayout TwoGroups() {
  KvLayout layout;
  layout.groups = {{0}, {32}};
  layout.layers = {{0, {{KvDtype::kF64, KvOrder::kHeadSlotDim, 1, 1}}},
                   {1, {{KvDtype::kF32, KvOrder::kHeadSlotDim, 2, 1}}}};
  return layout;
}

TEST(KvLayoutTest, PieceIsOneBlockOfOneLayer) {
  const KvLayout layout = Llama();
  ASSERT_TRUE(layout.Validate().ok());
  EXPECT_EQ(layout.PieceBytes(7, kKeyArena), 3u * 64 * 16 * 2);
  EXPECT_EQ(layout.PieceOffset(7, kValueArena, 5), 5u * 6144);
  EXPECT_EQ(layout.BlockBytes(0), 30u * 2 * 6144);
}

TEST(KvLayoutTest, AnInt8PieceHoldsAScaleForEachHeadAndSlot) {
  const KvLayout layout =
      MakeUniformLayout({.layers = 1, .kv_heads = 3, .head_dim = 64}, KvDtype::kInt8,
                        KvOrder::kHeadDimSlot, KvOrder::kHeadSlotDim);
  ASSERT_TRUE(layout.Validate().ok());
  EXPECT_EQ(layout.PieceBytes(0, kKeyArena), 3u * 16 * (64 + 4));
  EXPECT_EQ(layout.BlockBytes(0), 2u * 3 * 16 * (64 + 4));
}

TEST(KvLayoutTest, GroupsHaveTheirOwnLayersAndBytes) {
  const KvLayout layout = TwoGroups();
  ASSERT_TRUE(layout.Validate().ok());
  EXPECT_EQ(layout.LayersOf(1), std::vector<uint32_t>{1});
  EXPECT_EQ(layout.BlockBytes(0), 16u * 8);
  EXPECT_EQ(layout.BlockBytes(1), 16u * 2 * 4);
}

TEST(KvLayoutTest, FingerprintSeesEveryField) {
  const Digest original = TwoGroups().Fingerprint(1);
  EXPECT_EQ(original, TwoGroups().Fingerprint(1));
  EXPECT_NE(original, TwoGroups().Fingerprint(2));
  std::vector<KvLayout> changed(8, TwoGroups());
  changed[0].block_size = 32;
  changed[1].shards = 2;
  changed[2].groups[1].window = 33;
  changed[3].layers[1].group = 0;
  changed[4].layers[0].arenas[0].dtype = KvDtype::kF32;
  changed[5].layers[0].arenas[0].order = KvOrder::kHeadDimSlot;
  changed[6].layers[1].arenas[0].kv_heads = 1;
  changed[7].layers[1].arenas[0].head_dim = 2;
  for (const KvLayout& layout : changed) EXPECT_NE(layout.Fingerprint(1), original);
}

// Blocks move between versions of this program only while this value stays.
TEST(KvLayoutTest, FingerprintOfTheLlamaLayoutIsFixed) {
  const Digest digest = Llama().Fingerprint(1);
  EXPECT_EQ(digest.hi, 8559036722101531668u);
  EXPECT_EQ(digest.lo, 11563147351263305033u);
}

TEST(KvLayoutTest, RefusesWhatItCannotHold) {
  std::vector<KvLayout> bad(8, TwoGroups());
  bad[0].block_size = 24;
  bad[1].block_size = 512;
  bad[2].groups.push_back({});
  bad[3].layers[0].group = 7;
  bad[4].layers[0].arenas.clear();
  bad[5].layers[0].arenas[0].kv_heads = 65536;
  bad[5].layers[0].arenas[0].head_dim = 65536;
  bad[6].layers.clear();
  bad[7].layers[0].arenas[0].dtype = static_cast<KvDtype>(9);
  for (const KvLayout& layout : bad) {
    EXPECT_EQ(layout.Validate().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace baton::kv
