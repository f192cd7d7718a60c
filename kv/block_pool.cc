#include "kv/block_pool.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/check.h"

namespace baton::kv {

namespace {

template <typename Visit>
void ForEach(const GroupBlocks& blocks, Visit visit) {
  for (GroupId g = 0; g < blocks.size(); ++g) {
    for (const BlockId block : blocks[g]) {
      if (block != kNoBlock) visit(BlockRef{g, block});
    }
  }
}

absl::Status Broken(BlockRef ref, const char* what) {
  return absl::InternalError("block " + std::to_string(ref.block) + " of group " +
                             std::to_string(ref.group) + ": " + what);
}

}  // namespace

std::string_view BlockStateName(BlockState state) {
  static constexpr std::array<std::string_view, kNumBlockStates> kNames = {
      "free", "reserved", "filling", "live", "cached", "quarantined"};
  return kNames[static_cast<size_t>(state)];
}

BlockLease& BlockLease::operator=(BlockLease&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::exchange(other.pool_, nullptr);
    blocks_ = std::exchange(other.blocks_, {});
  }
  return *this;
}

void BlockLease::SetState(BlockState state, uint32_t begin, uint32_t end) {
  BATON_CHECK(state == BlockState::kReserved || state == BlockState::kFilling ||
              state == BlockState::kLive);
  for (GroupId g = 0; g < blocks_.size(); ++g) {
    BATON_CHECK(begin <= end && end <= blocks_[g].size());
    for (uint32_t i = begin; i < end; ++i) {
      const BlockRef ref{g, blocks_[g][i]};
      if (ref.block == kNoBlock) continue;
      const BlockPool::Block& block = pool_->At(ref);
      if (block.shares == 1 && !block.kept) pool_->Move(ref, state);
    }
  }
}

void BlockLease::Truncate(uint32_t count) {
  for (GroupId g = 0; g < blocks_.size(); ++g) {
    while (blocks_[g].size() > count) {
      const BlockRef ref{g, blocks_[g].back()};
      blocks_[g].pop_back();
      if (ref.block != kNoBlock) pool_->DropShare(ref);
    }
  }
}

BlockLease BlockLease::Share(uint32_t count) const {
  GroupBlocks shared = blocks_;
  for (std::vector<BlockId>& group : shared) {
    BATON_CHECK(count <= group.size());
    group.resize(count);
  }
  ForEach(shared, [&](BlockRef ref) {
    ++pool_->At(ref).shares;
    pool_->Move(ref, BlockState::kLive);
  });
  return BlockLease(pool_, std::move(shared));
}

BlockLease BlockLease::Extract(uint32_t begin, uint32_t count) {
  GroupBlocks extracted(blocks_.size());
  for (GroupId g = 0; g < blocks_.size(); ++g) {
    std::vector<BlockId>& group = blocks_[g];
    BATON_CHECK(begin <= group.size() && count <= group.size() - begin);
    const auto first = group.begin() + begin;
    extracted[g].assign(first, first + count);
    group.erase(first, first + count);
  }
  return BlockLease(pool_, std::move(extracted));
}

void BlockLease::Append(BlockLease other) {
  BATON_CHECK(pool_ != nullptr && other.pool_ == pool_);
  for (GroupId g = 0; g < blocks_.size(); ++g) {
    const std::vector<BlockId>& more = other.blocks_[g];
    blocks_[g].insert(blocks_[g].end(), more.begin(), more.end());
  }
  other.pool_ = nullptr;  // they are ours now
  other.blocks_.clear();
}

void BlockLease::Replace(uint32_t index, BlockLease other) {
  BATON_CHECK(pool_ != nullptr && other.pool_ == pool_);
  for (GroupId g = 0; g < blocks_.size(); ++g) {
    BATON_CHECK(index < blocks_[g].size() && other.blocks_[g].size() == 1);
    std::swap(blocks_[g][index], other.blocks_[g].front());
  }
}

void BlockLease::Insert(GroupId group, uint32_t index, uint32_t count) {
  std::vector<BlockId>& places = blocks_.at(group);
  BATON_CHECK(index <= places.size());
  places.insert(places.begin() + index, count, kNoBlock);
}

void BlockLease::Drop(GroupId group, uint32_t index) {
  pool_->DropShare({group, std::exchange(blocks_.at(group).at(index), kNoBlock)});
}

void BlockLease::Move(GroupId group, uint32_t from, uint32_t to) {
  std::vector<BlockId>& places = blocks_.at(group);
  BATON_CHECK(places.at(to) == kNoBlock && Alone(group, from));
  places[to] = std::exchange(places[from], kNoBlock);
  pool_->Move({group, places[to]}, BlockState::kReserved);
}

bool BlockLease::Alone(GroupId group, uint32_t index) const {
  const BlockPool::Block& block = pool_->At({group, blocks_.at(group).at(index)});
  return block.shares == 1 && !block.kept;
}

void BlockLease::Reset() {
  BlockPool* const pool = std::exchange(pool_, nullptr);
  const GroupBlocks blocks = std::exchange(blocks_, {});
  ForEach(blocks, [&](BlockRef ref) { pool->DropShare(ref); });
}

BlockPin& BlockPin::operator=(BlockPin&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::exchange(other.pool_, nullptr);
    blocks_ = std::exchange(other.blocks_, {});
  }
  return *this;
}

void BlockPin::Reset() {
  BlockPool* const pool = std::exchange(pool_, nullptr);
  const GroupBlocks blocks = std::exchange(blocks_, {});
  ForEach(blocks, [&](BlockRef ref) { pool->DropPin(ref); });
}

BlockPool::BlockPool(std::vector<uint32_t> blocks_per_group) : groups_(blocks_per_group.size()) {
  for (GroupId g = 0; g < groups_.size(); ++g) {
    const uint32_t size = blocks_per_group[g];
    groups_[g].blocks.resize(size);
    groups_[g].counts[static_cast<size_t>(BlockState::kFree)] = size;
    for (BlockId block = size; block > 0; --block) groups_[g].free.push_back(block - 1);
  }
}

BlockPool::~BlockPool() {
  for (const Group& group : groups_) BATON_CHECK(group.free.size() == group.blocks.size());
}

absl::StatusOr<BlockLease> BlockPool::Take(const std::vector<uint32_t>& wanted) {
  BATON_CHECK(wanted.size() == groups_.size());
  for (GroupId g = 0; g < groups_.size(); ++g) {
    if (wanted[g] > groups_[g].available()) {
      return absl::ResourceExhaustedError(
          "KV group " + std::to_string(g) + " has " + std::to_string(groups_[g].available()) +
          " free blocks of " + std::to_string(groups_[g].blocks.size()) + ", " +
          std::to_string(wanted[g]) + " are needed");
    }
  }
  for (GroupId g = 0; g < groups_.size(); ++g) {
    while (groups_[g].free.size() < wanted[g]) BATON_CHECK(keeper_ && keeper_->GiveUpSome());
  }
  GroupBlocks taken(groups_.size());
  for (GroupId g = 0; g < groups_.size(); ++g) {
    for (uint32_t i = 0; i < wanted[g]; ++i) {
      const BlockId block = groups_[g].free.back();
      groups_[g].free.pop_back();
      taken[g].push_back(block);
      At({g, block}).shares = 1;
      Move({g, block}, BlockState::kReserved);
    }
  }
  return BlockLease(this, std::move(taken));
}

BlockPin BlockPool::Pin(const GroupBlocks& blocks) {
  ForEach(blocks, [&](BlockRef ref) {
    BATON_CHECK(At(ref).shares > 0);
    ++At(ref).pins;
  });
  return BlockPin(this, blocks);
}

void BlockPool::Keep(BlockRef ref) {
  Block& block = At(ref);
  BATON_CHECK(keeper_ != nullptr && block.shares > 0 && !block.kept);
  block.kept = true;
  ++kept_;
  Move(ref, BlockState::kLive);
}

void BlockPool::Unkeep(BlockRef ref) {
  Block& block = At(ref);
  BATON_CHECK(block.kept);
  block.kept = false;
  --kept_;
  if (block.shares == 0 && block.pins == 0) Settle(ref);
}

BlockLease BlockPool::ShareKept(GroupBlocks blocks) {
  ForEach(blocks, [this](BlockRef ref) {
    BATON_CHECK(At(ref).kept);
    ++At(ref).shares;
    Move(ref, BlockState::kLive);
  });
  return BlockLease(this, std::move(blocks));
}

std::vector<uint32_t> BlockPool::capacity() const {
  std::vector<uint32_t> out;
  for (const Group& group : groups_) out.push_back(static_cast<uint32_t>(group.blocks.size()));
  return out;
}

std::vector<uint32_t> BlockPool::free_blocks() const {
  std::vector<uint32_t> out;
  for (const Group& group : groups_) out.push_back(group.available());
  return out;
}

bool BlockPool::CanEverFit(const std::vector<uint32_t>& wanted) const {
  BATON_CHECK(wanted.size() == groups_.size());
  for (GroupId g = 0; g < groups_.size(); ++g) {
    if (wanted[g] > groups_[g].blocks.size()) return false;
  }
  return true;
}

bool BlockPool::FitsNow(const std::vector<uint32_t>& wanted) const {
  BATON_CHECK(wanted.size() == groups_.size());
  for (GroupId g = 0; g < groups_.size(); ++g) {
    if (wanted[g] > groups_[g].available()) return false;
  }
  return true;
}

BlockCounts BlockPool::Counts() const {
  BlockCounts counts{};
  for (const Group& group : groups_) {
    for (size_t i = 0; i < kNumBlockStates; ++i) counts[i] += group.counts[i];
  }
  return counts;
}

BlockState BlockPool::StateOf(BlockRef ref) const {
  return groups_.at(ref.group).blocks.at(ref.block).state;
}

uint32_t BlockPool::SharesOf(BlockRef ref) const {
  return groups_.at(ref.group).blocks.at(ref.block).shares;
}

absl::Status BlockPool::CheckIntegrity() const {
  uint32_t kept = 0;
  for (GroupId g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    BlockCounts counts{};
    for (BlockId id = 0; id < group.blocks.size(); ++id) {
      const Block& block = group.blocks[id];
      ++counts[static_cast<size_t>(block.state)];
      kept += block.kept ? 1 : 0;
      const bool unused = block.shares == 0 && block.pins == 0;
      if ((block.state == BlockState::kFree) != (unused && !block.kept)) {
        return Broken({g, id}, "free but used, or the reverse");
      }
      if ((block.state == BlockState::kCached) != (unused && block.kept)) {
        return Broken({g, id}, "cached but used, or the reverse");
      }
      const bool orphan = block.shares == 0 && block.pins > 0;
      if ((block.state == BlockState::kQuarantined) != orphan) {
        return Broken({g, id}, "quarantined without reason, or the reverse");
      }
    }
    if (counts != group.counts) return Broken({g, 0}, "the counts per state do not add up");
    std::vector<bool> listed(group.blocks.size());
    for (const BlockId id : group.free) {
      if (listed.at(id)) return Broken({g, id}, "twice in the free list");
      if (group.blocks[id].state != BlockState::kFree) return Broken({g, id}, "listed, not free");
      listed[id] = true;
    }
    if (group.free.size() != counts[static_cast<size_t>(BlockState::kFree)]) {
      return Broken({g, 0}, "a free block is not in the free list");
    }
  }
  if (kept != kept_) return absl::InternalError("kept blocks are miscounted");
  return absl::OkStatus();
}

BlockPool::Block& BlockPool::At(BlockRef ref) {
  BATON_CHECK(ref.group < groups_.size() && ref.block < groups_[ref.group].blocks.size());
  return groups_[ref.group].blocks[ref.block];
}

void BlockPool::Move(BlockRef ref, BlockState to) {
  BlockState& state = At(ref).state;
  BlockCounts& counts = groups_[ref.group].counts;
  --counts[static_cast<size_t>(state)];
  ++counts[static_cast<size_t>(to)];
  state = to;
}

void BlockPool::DropShare(BlockRef ref) {
  Block& block = At(ref);
  BATON_CHECK(block.shares > 0);
  if (--block.shares > 0) return;
  if (block.kept) keeper_->OnUnshared(ref);
  if (block.pins > 0) {
    Move(ref, BlockState::kQuarantined);
  } else {
    Settle(ref);
  }
}

void BlockPool::DropPin(BlockRef ref) {
  Block& block = At(ref);
  BATON_CHECK(block.pins > 0);
  if (--block.pins == 0 && block.shares == 0) Settle(ref);
}

void BlockPool::Settle(BlockRef ref) {
  const bool kept = At(ref).kept;
  Move(ref, kept ? BlockState::kCached : BlockState::kFree);
  if (!kept) groups_[ref.group].free.push_back(ref.block);
  if (freed_ != nullptr) freed_();
}

}  // namespace baton::kv
