#include "kv/arena_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <memory>
#include <vector>

#include "kv/arena.h"

namespace baton::kv {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint32_t kBlocks = 700;  // regions of 5.5 MiB: two huge pages and a rest

std::unique_ptr<KvArena> Arena(bool shareable) {
  const KvLayout layout =
      MakeUniformLayout({.layers = 2, .kv_heads = 4, .head_dim = 64}, KvDtype::kF16,
                        KvOrder::kHeadDimSlot, KvOrder::kHeadSlotDim);
  auto arena = KvArena::Create(layout, {.blocks = {kBlocks}, .shareable = shareable});
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

// Whether the kernel has given every page of every layer.
bool AllThere(KvArena& arena) {
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (uint32_t part = 0; part < 2; ++part) {
      std::vector<unsigned char> pages((arena.region(layer, part).bytes + kPage - 1) / kPage);
      EXPECT_EQ(mincore(arena.Piece(layer, part, 0).data(), arena.region(layer, part).bytes,
                        pages.data()),
                0);
      if (std::any_of(pages.begin(), pages.end(), [](auto page) { return (page & 1) == 0; })) {
        return false;
      }
    }
  }
  return true;
}

class ArenaPagesTest : public testing::TestWithParam<bool> {};  // shareable

TEST_P(ArenaPagesTest, EveryPageComesAndContentsStay) {
  const auto arena = Arena(GetParam());
  EXPECT_FALSE(AllThere(*arena));
  const auto written = arena->Piece(1, kValueArena, 333);
  std::fill(written.begin(), written.end(), std::byte{42});
  std::promise<absl::Status> done;
  const ArenaPages pages(*arena, [&](const absl::Status& status) { done.set_value(status); });
  const absl::Status status = done.get_future().get();
  if (status.code() == absl::StatusCode::kUnimplemented) GTEST_SKIP() << status;
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(AllThere(*arena));
  EXPECT_TRUE(
      std::all_of(written.begin(), written.end(), [](auto b) { return b == std::byte{42}; }));
  const auto other = arena->Piece(0, kKeyArena, kBlocks - 1);
  EXPECT_TRUE(std::all_of(other.begin(), other.end(), [](auto b) { return b == std::byte{0}; }));
}

TEST_P(ArenaPagesTest, ItsThreadGivesWayAndNoOther) {
  const auto nice = [] { return getpriority(PRIO_PROCESS, 0); };
  const int own = nice();
  if (own >= 10) GTEST_SKIP() << "this process gives way already";
  const auto arena = Arena(GetParam());
  std::promise<int> of_thread;
  const ArenaPages pages(*arena, [&](const absl::Status&) { of_thread.set_value(nice()); });
  EXPECT_EQ(of_thread.get_future().get(), 10);
  EXPECT_EQ(nice(), own);
}

TEST_P(ArenaPagesTest, StopsWhenItIsNotWantedAnyMore) {
  for (int round = 0; round < 20; ++round) {
    const auto arena = Arena(GetParam());
    const ArenaPages pages(*arena, [](const absl::Status&) {});
  }
}

INSTANTIATE_TEST_SUITE_P(PrivateAndShared, ArenaPagesTest, testing::Bool());

}  // namespace
}  // namespace baton::kv
