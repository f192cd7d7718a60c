// The blocks of one sequence by position: slot p of group g lies in block blocks()[g][p /
// block_size], as long as a later token can see it.
#ifndef BATON_KV_BLOCK_TABLE_H_
#define BATON_KV_BLOCK_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "kv/block.h"
#include "kv/block_pool.h"
#include "kv/sliding_windows.h"

namespace baton::kv {

// Owner thread: the engine's executor. Move-only.
class BlockTable {
 public:
  BlockTable() = default;
  // Slots [0, filled) are written already (received); block_size is a power of two.
  BlockTable(BlockLease lease, uint32_t block_size, uint32_t filled);

  uint32_t block_size() const { return block_size_; }
  uint32_t filled() const { return filled_; }
  uint64_t slots() const;  // room, in the smallest group
  const GroupBlocks& blocks() const { return lease_.blocks(); }

  // Per group, the blocks of slots [0, end).
  GroupBlocks Prefix(uint32_t end) const;

  // Slots [filled(), end) are about to be written: returns the blocks touched for the first time,
  // which must be zeroed before and are in `state` from now on. Requires filled() <= end <=
  // slots().
  std::vector<BlockRef> Extend(uint32_t end, BlockState state);

  // Of the blocks of slots [0, filled()); the room to grow stays reserved.
  void SetState(BlockState state);

  // Blocks may be replaced by equal ones.
  BlockLease& lease() { return lease_; }
  // The blocks leave the table.
  BlockLease TakeLease() { return std::move(lease_); }

  // Blocks that no token at filled() or later can see leave their places, each for the first place
  // behind filled() that has none, else for the pool. No step that reads them is in flight.
  void Slide(const SlidingWindows& windows);

  // Forgets what lies at and after `end` (the blocks stay); no reader looks past filled(). What
  // slid out of a window does not come back.
  void Truncate(uint32_t end);

 private:
  BlockLease lease_;
  uint32_t block_size_ = 1;
  uint32_t filled_ = 0;
};

}  // namespace baton::kv

#endif  // BATON_KV_BLOCK_TABLE_H_
