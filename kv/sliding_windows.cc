#include "kv/sliding_windows.h"

#include <algorithm>

#include "common/check.h"

namespace baton::kv {

SlidingWindows::SlidingWindows(const KvLayout& layout, uint32_t step_tokens)
    : block_size_(layout.block_size), step_tokens_(step_tokens) {
  BATON_CHECK(step_tokens >= 1);
  const auto slides = [](const KvGroupSpec& group) { return group.window > 0; };
  if (std::none_of(layout.groups.begin(), layout.groups.end(), slides)) return;
  for (const KvGroupSpec& group : layout.groups) windows_.push_back(group.window);
}

uint32_t SlidingWindows::FirstSeen(GroupId group, uint32_t position) const {
  const uint32_t window = WindowOf(group);
  if (window == 0 || position < window) return 0;
  return (position - window + 1) / block_size_;
}

SlidingWindows::Held SlidingWindows::HeldOf(GroupId group, const BlockPlaces& places,
                                            uint32_t filled) const {
  const uint32_t window = WindowOf(group);
  if (window == 0) return {0, places.shared, places.own};
  // A step's first token sees window - 1 positions before it, so window + step_tokens - 1 positions
  // in a row take part.
  const uint64_t most = BlocksFor(uint64_t{window} + step_tokens_ - 2, block_size_) + 1;
  const auto at_most = [most](uint32_t count) {
    return static_cast<uint32_t>(std::min<uint64_t>(count, most));
  };
  const uint32_t first = std::min(FirstSeen(group, filled), places.shared);
  return {first, at_most(places.shared - first), at_most(places.own)};
}

std::vector<uint32_t> SlidingWindows::Needed(const BlockPlaces& places, uint32_t filled,
                                             size_t groups) const {
  std::vector<uint32_t> blocks;
  for (GroupId g = 0; g < groups; ++g) {
    const Held held = HeldOf(g, places, filled);
    blocks.push_back(held.shared + places.parts * held.own);
  }
  return blocks;
}

void SlidingWindows::Place(const BlockPlaces& places, uint32_t filled, BlockLease& lease) const {
  if (!any()) return;
  for (GroupId g = 0; g < lease.blocks().size(); ++g) {
    const Held held = HeldOf(g, places, filled);
    lease.Insert(g, 0, held.first);
    const uint32_t end = held.first + held.shared;
    lease.Insert(g, end, places.shared - end);
    for (uint32_t part = 0; part < places.parts; ++part) {
      lease.Insert(g, places.shared + part * places.own + held.own, places.own - held.own);
    }
  }
}

}  // namespace baton::kv
