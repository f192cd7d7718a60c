// How many blocks a request needs: the one function that router and workers compare by.
#ifndef BATON_KV_BLOCK_DEMAND_H_
#define BATON_KV_BLOCK_DEMAND_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace baton::kv {

// Blocks that hold `tokens` slots.
constexpr uint64_t BlocksFor(uint64_t tokens, uint32_t block_size) {
  return tokens / block_size + (tokens % block_size != 0 ? 1 : 0);
}

// Of one group with full attention: the shared full prompt blocks, and for each of the `n` choices
// its own part of the prompt's last block and of the max_tokens - 1 tokens that are read again (the
// last one never enters the cache). n and max_tokens are at least 1; max_tokens = 1 is what a
// source needs. OUT_OF_RANGE when it does not fit 32 bits.
absl::StatusOr<uint32_t> BlocksNeeded(uint64_t prompt_tokens, uint32_t n, uint32_t max_tokens,
                                      uint32_t block_size);

}  // namespace baton::kv

#endif  // BATON_KV_BLOCK_DEMAND_H_
