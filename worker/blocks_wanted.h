// How many blocks a request needs here, per KV group.
#ifndef BATON_WORKER_BLOCKS_WANTED_H_
#define BATON_WORKER_BLOCKS_WANTED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "kv/block_demand.h"
#include "kv/block_pool.h"
#include "worker/role.h"

namespace baton::worker {

// What a request takes blocks for.
struct Demand {
  kv::BlockPlaces places;
  uint32_t filled = 0;  // tokens of the prompt that come from elsewhere
  std::vector<uint32_t> blocks;
};

// For a prompt and `n` choices of max_tokens, all of it computed here. INVALID_ARGUMENT with both
// numbers when it does not fit the empty pool.
inline absl::StatusOr<Demand> BlocksWanted(const WorkerContext& context, size_t prompt_tokens,
                                           size_t n, uint32_t max_tokens) {
  const std::vector<uint32_t>& pools = context.options.pool_blocks;
  Demand demand;
  BATON_ASSIGN_OR_RETURN(demand.places,
                         kv::PlacesNeeded(prompt_tokens, static_cast<uint32_t>(n), max_tokens,
                                          context.options.layout.block_size));
  demand.blocks = context.windows.Needed(demand.places, 0, pools.size());
  for (size_t g = 0; g < pools.size(); ++g) {
    if (demand.blocks[g] <= pools[g]) continue;
    return absl::InvalidArgumentError("prompt, n and max_tokens need " +
                                      std::to_string(demand.blocks[g]) +
                                      " KV blocks, the pool has " + std::to_string(pools[g]));
  }
  return demand;
}

// Of those, what it takes to begin with when its choices have `sampled` tokens. From there it grows
// (engine/room_by_age.h).
inline Demand BlocksAtFirst(const WorkerContext& context, size_t prompt_tokens, size_t n,
                            uint32_t max_tokens, uint32_t sampled = 0) {
  const uint32_t block_size = context.options.layout.block_size;
  return *BlocksWanted(context, prompt_tokens, n,
                       kv::TokensAtFirst(sampled, max_tokens, block_size));
}

// The same of one whose whole prompt is received: no blocks that its answer does not see.
inline Demand BlocksToReceive(const WorkerContext& context, size_t prompt_tokens, size_t n,
                              uint32_t max_tokens) {
  Demand demand = BlocksAtFirst(context, prompt_tokens, n, max_tokens);
  demand.filled = static_cast<uint32_t>(prompt_tokens);
  demand.blocks = context.windows.Needed(demand.places, demand.filled, demand.blocks.size());
  return demand;
}

// Once they are taken.
inline void PlaceBlocks(const WorkerContext& context, const Demand& demand, kv::BlockLease& lease) {
  context.windows.Place(demand.places, demand.filled, lease);
}

}  // namespace baton::worker

#endif  // BATON_WORKER_BLOCKS_WANTED_H_
