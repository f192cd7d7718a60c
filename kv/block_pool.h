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
  kLive,         // of a sequence whose prompt is complete
  kCached,       // held by the prefix cache alone
  kQuarantined,  // given up by its last holder, but a step or a transfer may still touch it
};
inline constexpr size_t kNumBlockStates = 6;
std::string_view BlockStateName(BlockState state);  // label of baton_kv_blocks

using BlockCounts = std::array<uint32_t, kNumBlockStates>;  // by BlockState

// Block ids per group, each in order of position.
using GroupBlocks = std::vector<std::vector<BlockId>>;

class BlockPool;

// A share in blocks of every group. Returns it when destroyed: a block without shares becomes free,
// or is quarantined until its last pin is gone. Move-only; must not outlive its pool.
class BlockLease {
 public:
  BlockLease() = default;
  BlockLease(BlockLease&& other) noexcept { *this = std::move(other); }
  BlockLease& operator=(BlockLease&& other) noexcept;
  ~BlockLease() { Reset(); }

  bool empty() const { return pool_ == nullptr; }
  const GroupBlocks& blocks() const { return blocks_; }

  // Of blocks [begin, end) of each group, those that nobody else shares; `state` is kReserved,
  // kFilling or kLive.
  void SetState(BlockState state, uint32_t begin, uint32_t end);
  // Gives back all but the first `count` blocks of each group.
  void Truncate(uint32_t count);
  // Another share of the first `count` blocks of each group; they become live.
  BlockLease Share(uint32_t count) const;
  // Splits blocks [begin, begin + count) of each group off; what lies behind them moves up.
  BlockLease Extract(uint32_t begin, uint32_t count);
  // Takes the other's blocks, of the same pool, behind its own.
  void Append(BlockLease other);
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
  // them.
  absl::StatusOr<BlockLease> Take(const std::vector<uint32_t>& wanted);
  // Every block named has a share (a lease lives).
  BlockPin Pin(const GroupBlocks& blocks);

  // Called for every block that became free, inside the call that freed it: it may only Post.
  void SetFreedCallback(std::function<void()> callback) { freed_ = std::move(callback); }

  size_t num_groups() const { return groups_.size(); }
  std::vector<uint32_t> capacity() const;
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
  };
  struct Group {
    std::vector<Block> blocks;
    std::vector<BlockId> free;  // taken from the back: the block freed last is used first
    BlockCounts counts{};
  };

  Block& At(BlockRef ref);
  void Move(BlockRef ref, BlockState to);
  void DropShare(BlockRef ref);
  void DropPin(BlockRef ref);
  void Free(BlockRef ref);

  std::vector<Group> groups_;
  std::function<void()> freed_;
};

}  // namespace baton::kv

#endif  // BATON_KV_BLOCK_POOL_H_
