#include "kv/block_table.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "kv/block_demand.h"

namespace baton::kv {

BlockTable::BlockTable(BlockLease lease, uint32_t block_size, uint32_t filled)
    : lease_(std::move(lease)), block_size_(block_size), filled_(filled) {
  BATON_CHECK(block_size > 0 && (block_size & (block_size - 1)) == 0);
  BATON_CHECK(filled <= slots());
}

uint64_t BlockTable::slots() const {
  if (lease_.empty()) return 0;
  size_t smallest = std::numeric_limits<size_t>::max();
  for (const std::vector<BlockId>& group : lease_.blocks()) {
    smallest = std::min(smallest, group.size());
  }
  return static_cast<uint64_t>(smallest) * block_size_;
}

GroupBlocks BlockTable::Prefix(uint32_t end) const {
  const uint64_t count = BlocksFor(end, block_size_);
  GroupBlocks out = lease_.blocks();
  for (std::vector<BlockId>& group : out) {
    BATON_CHECK(count <= group.size());
    group.resize(count);
  }
  return out;
}

std::vector<BlockRef> BlockTable::Extend(uint32_t end, BlockState state) {
  BATON_CHECK(filled_ <= end && end <= slots());
  const auto first_block = static_cast<uint32_t>(BlocksFor(filled_, block_size_));
  const auto end_block = static_cast<uint32_t>(BlocksFor(end, block_size_));
  filled_ = end;
  if (first_block == end_block) return {};
  lease_.SetState(state, first_block, end_block);
  const GroupBlocks& blocks = lease_.blocks();
  std::vector<BlockRef> touched;
  for (GroupId g = 0; g < blocks.size(); ++g) {
    for (uint32_t i = first_block; i < end_block; ++i) {
      BATON_CHECK(blocks[g][i] != kNoBlock);
      touched.push_back({g, blocks[g][i]});
    }
  }
  return touched;
}

void BlockTable::Slide(const SlidingWindows& windows) {
  if (!windows.any() || lease_.empty()) return;
  for (GroupId g = 0; g < lease_.blocks().size(); ++g) {
    const std::vector<BlockId>& places = lease_.blocks()[g];
    auto empty = static_cast<uint32_t>(BlocksFor(filled_, block_size_));
    // Those before the first one that is gone went earlier.
    for (uint32_t i = windows.FirstSeen(g, filled_); i-- > 0 && places[i] != kNoBlock;) {
      while (empty < places.size() && places[empty] != kNoBlock) ++empty;
      if (empty < places.size() && lease_.Alone(g, i)) {
        lease_.Move(g, i, empty);
      } else {
        lease_.Drop(g, i);
      }
    }
  }
}

void BlockTable::SetState(BlockState state) {
  lease_.SetState(state, 0, static_cast<uint32_t>(BlocksFor(filled_, block_size_)));
}

void BlockTable::Truncate(uint32_t end) {
  BATON_CHECK(end <= filled_);
  filled_ = end;
}

}  // namespace baton::kv
