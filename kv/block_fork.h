// One request's blocks become those of its choices.
#ifndef BATON_KV_BLOCK_FORK_H_
#define BATON_KV_BLOCK_FORK_H_

#include <cstdint>
#include <vector>

#include "kv/block.h"
#include "kv/block_table.h"

namespace baton::kv {

struct ForkedBlocks {
  std::vector<BlockTable> tables;
  // To be done before any of the tables is written to, all of them before the first.
  std::vector<BlockCopy> copies;
};

// `prompt` holds a whole prompt. In each group its blocks are the prompt's full blocks, then equal
// parts for each of the `n` choices (kv/block_demand.h), what is left being the first one's; the
// first part begins with the prompt's last block when that is partly filled. `live` of the choices
// go on: each gets a table with the prompt filled, which shares the full blocks and has a part of
// its own. The other parts, and with the last table the full blocks, are given back.
ForkedBlocks ForkBlocks(BlockTable prompt, uint32_t n, uint32_t live);

// Slots that each of `n` choices would have.
uint64_t ForkedSlots(const BlockTable& table, uint64_t prompt_tokens, uint32_t n);

}  // namespace baton::kv

#endif  // BATON_KV_BLOCK_FORK_H_
