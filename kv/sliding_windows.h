// Which blocks of a sequence its KV groups hold. In a group with a sliding window these are the
// blocks that some later token can see, and room for the tokens of a step: their number has a bound
// that does not depend on the sequence's length. Blocks that no later token can see are used again
// for the sequence's next positions or given back (BlockTable::Slide).
#ifndef BATON_KV_SLIDING_WINDOWS_H_
#define BATON_KV_SLIDING_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/block.h"
#include "kv/block_demand.h"
#include "kv/block_pool.h"
#include "kv/layout.h"

namespace baton::kv {

// A value; thread-compatible.
class SlidingWindows {
 public:
  // No group has one.
  SlidingWindows() = default;
  // Of `layout`, for sequences that run at most `step_tokens` (at least 1) tokens in a step.
  SlidingWindows(const KvLayout& layout, uint32_t step_tokens);

  // Some group has one.
  bool any() const { return !windows_.empty(); }

  // The first place that a token at `position` or later sees in `group`.
  uint32_t FirstSeen(GroupId group, uint32_t position) const;

  // Blocks of each of the `groups` for a sequence with these places whose tokens [0, filled) are
  // there already. With a window so many of its shared places, and of each part, that any window
  // and the tokens of a step lie in them; it never holds more (filled = 0: of all that it
  // computes).
  std::vector<uint32_t> Needed(const BlockPlaces& places, uint32_t filled, size_t groups) const;

  // Has the blocks of a new lease of Needed in their places: from the first seen on. Whatever
  // else is a place of the group has no block yet.
  void Place(const BlockPlaces& places, uint32_t filled, BlockLease& lease) const;

 private:
  // Of a group with a window, in the shared places and in each part.
  struct Held {
    uint32_t first = 0;
    uint32_t shared = 0;
    uint32_t own = 0;
  };
  Held HeldOf(GroupId group, const BlockPlaces& places, uint32_t filled) const;
  uint32_t WindowOf(GroupId group) const { return any() ? windows_[group] : 0; }

  std::vector<uint32_t> windows_;  // by group, 0: sees all; empty: no group has one
  uint32_t block_size_ = 1;
  uint32_t step_tokens_ = 1;
};

}  // namespace baton::kv

#endif  // BATON_KV_SLIDING_WINDOWS_H_
