#include "kvtransfer/test_rig.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/random.h"

namespace baton::kvtransfer {

kv::KvLayout SmallLayout() {
  kv::KvLayout layout;
  layout.block_size = 16;
  layout.groups = {{0}, {64}};
  const kv::KvArenaSpec key{kv::KvDtype::kF16, kv::KvOrder::kHeadDimSlot, 2, 8};
  const kv::KvArenaSpec value{kv::KvDtype::kF32, kv::KvOrder::kHeadSlotDim, 1, 6};
  layout.layers = {{0, {key, value}}, {1, {key, value}}, {0, {value, key}}};
  return layout;
}

std::unique_ptr<kv::KvArena> MakeArena(const kv::KvLayout& layout, uint32_t blocks,
                                       bool shareable) {
  kv::KvArena::Options options;
  options.sealed = true;
  options.blocks.assign(layout.groups.size(), blocks);
  options.shareable = shareable;
  auto arena = kv::KvArena::Create(layout, options);
  BATON_CHECK(arena.ok());
  return *std::move(arena);
}

void FillArena(kv::KvArena& arena, uint64_t seed) {
  SeededRandom random(seed);
  const kv::KvLayout& layout = arena.layout();
  for (uint32_t layer = 0; layer < layout.layers.size(); ++layer) {
    for (uint32_t a = 0; a < layout.layers[layer].arenas.size(); ++a) {
      for (kv::BlockId block = 0; block < arena.blocks(layout.layers[layer].group); ++block) {
        for (std::byte& byte : arena.Piece(layer, a, block)) {
          byte = static_cast<std::byte>(random.Next64());
        }
      }
    }
  }
}

bool SameBlock(const kv::KvArena& a, kv::BlockId block_a, const kv::KvArena& b, kv::BlockId block_b,
               uint32_t group) {
  for (const uint32_t layer : a.layout().LayersOf(group)) {
    for (uint32_t arena = 0; arena < a.layout().layers[layer].arenas.size(); ++arena) {
      const auto left = a.Piece(layer, arena, block_a);
      const auto right = b.Piece(layer, arena, block_b);
      if (!std::equal(left.begin(), left.end(), right.begin(), right.end())) return false;
    }
  }
  return true;
}

AttemptId TestAttempt(uint64_t request, uint32_t attempt) {
  return {{0x1111, 0x2222}, request, attempt};
}

}  // namespace baton::kvtransfer
