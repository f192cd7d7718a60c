// Who holds which KV blocks of a worker, group by group. Owner thread: the engine's executor, for
// the pool and for every lease and pin taken from it.
#ifndef BATON_KV_BLOCK_POOL_H_
#define BATON_KV_BLOCK_POOL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kv/block.h"

namespace baton::kv {

enum class BlockState : uint8_t {
  kFree,
  kReserved,     // taken, nothing written yet (also: granted to a peer)
  kFilling,      // its prompt is being computed or received
  kLive,         // of a sequence whose prompt is complete, or kept and shared
  kCached,       // kept, but of no sequence: Take may give it to someone else
  kQuarantined,  // given up by its last holder, but a step or a transfer may still touch it
};
inline constexpr size_t kNumBlockStates = 6;
std::string_view BlockStateName(BlockState state);  // label of baton_kv_blocks

using BlockCounts = std::array<uint32_t, kNumBlockStates>;  // by BlockState

// Block ids per group, each in order of position. A place may be without a block (kNoBlock).
using GroupBlocks = std::vector<std::vector<BlockId>>;

class BlockPool;

// Who keeps blocks beyond their last holder: the prefix cache. Called inside calls to the pool, its
// leases and pins.
class BlockKeeper {
 public:
  virtual ~BlockKeeper() = default;
  // The last share of a kept block was given back. May not call the pool.
  virtual void OnUnshared(BlockRef ref) = 0;
  // Unkeep some blocks without shares, so that as often as needed all of them become free. False
  // when none is left.
  virtual bool GiveUpSome() = 0;
};

// A share in blocks of every group. Returns it when destroyed: a block without shares becomes free,
// or cached when it is kept, after its last pin is gone; until then it is quarantined. Move-only;
// must not outlive its pool.
class BlockLease {
 public:
  BlockLease() = default;
  BlockLease(BlockLease&& other) noexcept { *this = std::move(other); }
  BlockLease& operator=(BlockLease&& other) noexcept;
  ~BlockLease() { Reset(); }

  bool empty() const { return pool_ == nullptr; }
  const GroupBlocks& blocks() const { return blocks_; }

  // Of blocks [begin, end) of each group, those that nobody else shares or keeps; `state` is
  // kReserved, kFilling or kLive.
  void SetState(BlockState state, uint32_t begin, uint32_t end);
  // Gives back all but the first `count` places of each group.
  void Truncate(uint32_t count);
  // Another share of the first `count` blocks of each group; they become live.
  BlockLease Share(uint32_t count) const;
  // Splits blocks [begin, begin + count) of each group off; what lies behind them moves up.
  BlockLease Extract(uint32_t begin, uint32_t count);
  // Takes the other's blocks, of the same pool, behind its own.
  void Append(BlockLease other);
  // Gives block `index` of each group back and has the other's only block in its place.
  void Replace(uint32_t index, BlockLease other);

  // Of one group: `count` places without a block before place `index`.
  void Insert(GroupId group, uint32_t index, uint32_t count);
  // Gives the block of place `index` back; the place is without one.
  void Drop(GroupId group, uint32_t index);
  // The block of place `from`, which nobody else shares, is reserved for place `to`, which has
  // none.
  void Move(GroupId group, uint32_t from, uint32_t to);
  bool Alone(GroupId group, uint32_t index) const;  // nobody else shares it
  void Reset();

 private:
  friend class BlockPool;
  BlockLease(BlockPool* pool, GroupBlocks blocks) : pool_(pool), blocks_(std::move(blocks)) {}

  BlockPool* pool_ = nullptr;
  GroupBlocks blocks_;
};

// Keeps blocks from being given to someone else while it exists, whatever happens to their lease:
// held by a step in flight, and by a transfer until it is quiesced. Move-only; must not outlive its
// pool.
class BlockPin {
 public:
  BlockPin() = default;
  BlockPin(BlockPin&& other) noexcept { *this = std::move(other); }
  BlockPin& operator=(BlockPin&& other) noexcept;
  ~BlockPin() { Reset(); }
  bool empty() const { return pool_ == nullptr; }
  void Reset();

 private:
  friend class BlockPool;
  BlockPin(BlockPool* pool, GroupBlocks blocks) : pool_(pool), blocks_(std::move(blocks)) {}

  BlockPool* pool_ = nullptr;
  GroupBlocks blocks_;
};

class BlockPool {
 public:
  // One entry per group.
  explicit BlockPool(std::vector<uint32_t> blocks_per_group);
  ~BlockPool();  // no lease and no pin is left
  BlockPool(const BlockPool&) = delete;

  // `wanted[g]` blocks of each group g, or none: RESOURCE_EXHAUSTED names the group that lacks
  // them. Free ones first; then the keeper gives up what it must.
  absl::StatusOr<BlockLease> Take(const std::vector<uint32_t>& wanted);
  // Every block named has a share (a lease lives).
  BlockPin Pin(const GroupBlocks& blocks);

  // Null: nobody keeps blocks (any more: none is kept).
  void SetKeeper(BlockKeeper* keeper) { keeper_ = keeper; }
  // The keeper's alone. Keep: of a block with a share. Unkeep: it is free unless shared or pinned.
  // ShareKept: another share in each block, all of them kept.
  void Keep(BlockRef ref);
  void Unkeep(BlockRef ref);
  BlockLease ShareKept(GroupBlocks blocks);
  uint32_t kept() const { return kept_; }  // over all groups

  // Called for every block that became free or cached, inside the call that did it: it may only
  // Post.
  void SetFreedCallback(std::function<void()> callback) { freed_ = std::move(callback); }

  size_t num_groups() const { return groups_.size(); }
  std::vector<uint32_t> capacity() const;
  // What Take can give, of each group: free and cached ones.
  std::vector<uint32_t> free_blocks() const;
  // Whether `wanted` would fit an empty pool / fits now.
  bool CanEverFit(const std::vector<uint32_t>& wanted) const;
  bool FitsNow(const std::vector<uint32_t>& wanted) const;

  BlockCounts Counts() const;  // over all groups
  BlockState StateOf(BlockRef ref) const;
  uint32_t SharesOf(BlockRef ref) const;

  // INTERNAL when counts, shares, pins and the free lists contradict each other. For tests and idle
  // workers: walks every block.
  absl::Status CheckIntegrity() const;

 private:
  friend class BlockLease;
  friend class BlockPin;
  struct Block {
    BlockState state = BlockState::kFree;
    uint32_t shares = 0;
    uint32_t pins = 0;
    bool kept = false;
  };
  struct Group {
    std::vector<Block> blocks;
    std::vector<BlockId> free;  // taken from the back: the block freed last is used first
    BlockCounts counts{};
    uint32_t in(BlockState state) const { return counts[static_cast<size_t>(state)]; }
    uint32_t available() const { return in(BlockState::kFree) + in(BlockState::kCached); }
  };

  Block& At(BlockRef ref);
  void Move(BlockRef ref, BlockState to);
  void DropShare(BlockRef ref);
  void DropPin(BlockRef ref);
  // It has neither shares nor pins.
  void Settle(BlockRef ref);

  std::vector<Group> groups_;
  BlockKeeper* keeper_ = nullptr;
  uint32_t kept_ = 0;
  std::function<void()> freed_;
};

}  // namespace baton::kv

#endif  // BATON_KV_BLOCK_POOL_H_
