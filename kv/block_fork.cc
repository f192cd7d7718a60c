#include "kv/block_fork.h"

#include <utility>

#include "common/check.h"

namespace baton::kv {
namespace {

// The shared blocks again, then `own`.
BlockLease Branch(const BlockLease& first, uint32_t shared, BlockLease own) {
  BlockLease branch = first.Share(shared);
  branch.Append(std::move(own));
  return branch;
}

}  // namespace

uint64_t ForkedSlots(const BlockTable& table, uint64_t prompt_tokens, uint32_t n) {
  const uint64_t blocks = table.slots() / table.block_size();
  const uint64_t shared = prompt_tokens / table.block_size();
  if (blocks < shared) return table.slots();
  return (shared + (blocks - shared) / n) * table.block_size();
}

ForkedBlocks ForkBlocks(BlockTable prompt, uint32_t n, uint32_t live) {
  const uint32_t block_size = prompt.block_size();
  const uint32_t filled = prompt.filled();
  const uint32_t shared = filled / block_size;
  const auto own = static_cast<uint32_t>(ForkedSlots(prompt, filled, n) / block_size) - shared;
  BATON_CHECK(live <= n && uint64_t{shared + own} * block_size >= filled);
  BlockLease first = prompt.TakeLease();
  std::vector<BlockLease> parts;  // of the choices but the first, the last one's first
  for (uint32_t i = n; i-- > 1;) parts.push_back(first.Extract(shared + i * own, own));
  ForkedBlocks out;
  if (live == 0) return out;
  for (uint32_t i = 1; i < live; ++i, parts.pop_back()) {
    BlockLease branch = Branch(first, shared, std::move(parts.back()));
    if (filled % block_size != 0) {
      branch.SetState(BlockState::kLive, shared, shared + 1);
      for (GroupId g = 0; g < branch.blocks().size(); ++g) {
        out.copies.push_back({g, first.blocks()[g][shared], branch.blocks()[g][shared]});
      }
    }
    out.tables.emplace_back(std::move(branch), block_size, filled);
  }
  out.tables.emplace(out.tables.begin(), std::move(first), block_size, filled);
  return out;
}

}  // namespace baton::kv
