// How many blocks a request needs here, per KV group.
#ifndef BATON_WORKER_BLOCKS_WANTED_H_
#define BATON_WORKER_BLOCKS_WANTED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "kv/block_demand.h"
#include "worker/role.h"

namespace baton::worker {

// For a prompt and `n` choices of max_tokens. INVALID_ARGUMENT with both numbers when it does not
// fit the empty pool.
inline absl::StatusOr<std::vector<uint32_t>> BlocksWanted(const WorkerContext& context,
                                                          size_t prompt_tokens, size_t n,
                                                          uint32_t max_tokens) {
  const WorkerOptions& options = context.options;
  BATON_ASSIGN_OR_RETURN(const uint32_t blocks,
                         kv::BlocksNeeded(prompt_tokens, static_cast<uint32_t>(n), max_tokens,
                                          options.layout.block_size));
  for (const uint32_t capacity : options.pool_blocks) {
    if (blocks <= capacity) continue;
    return absl::InvalidArgumentError("prompt, n and max_tokens need " + std::to_string(blocks) +
                                      " KV blocks, the pool has " + std::to_string(capacity));
  }
  return std::vector<uint32_t>(options.pool_blocks.size(), blocks);
}

}  // namespace baton::worker

#endif  // BATON_WORKER_BLOCKS_WANTED_H_
