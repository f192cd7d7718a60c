// How many blocks a request needs: the one function that router and workers compare by.
#ifndef BATON_KV_BLOCK_DEMAND_H_
#define BATON_KV_BLOCK_DEMAND_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/statusor.h"

namespace baton::kv {

// Blocks that hold `tokens` slots.
constexpr uint64_t BlocksFor(uint64_t tokens, uint32_t block_size) {
  return tokens / block_size + (tokens % block_size != 0 ? 1 : 0);
}

// The places of a request's blocks, the same in every group: those of the prompt's full blocks,
// then equal parts for each choice. A group with full attention has a block in each of them.
struct BlockPlaces {
  uint32_t shared = 0;
  uint32_t parts = 1;
  uint32_t own = 0;  // of a part
  uint32_t total() const { return shared + parts * own; }
};

// The shared full prompt blocks, and for each of the `n` choices its own part of the prompt's last
// block and of the max_tokens - 1 tokens that are read again (the last one never enters the cache).
// n and max_tokens are at least 1; max_tokens = 1 is what a source needs. OUT_OF_RANGE when
// total() does not fit 32 bits.
absl::StatusOr<BlockPlaces> PlacesNeeded(uint64_t prompt_tokens, uint32_t n, uint32_t max_tokens,
                                         uint32_t block_size);

// Their total: blocks of one group with full attention.
absl::StatusOr<uint32_t> BlocksNeeded(uint64_t prompt_tokens, uint32_t n, uint32_t max_tokens,
                                      uint32_t block_size);

// The max_tokens that a request takes blocks for to begin with, when each of its choices has
// `sampled` tokens: a block's worth of growth, as far as it may grow. It takes the others one by
// one as they are needed.
constexpr uint32_t TokensAtFirst(uint32_t sampled, uint32_t max_tokens, uint32_t block_size) {
  return static_cast<uint32_t>(std::min<uint64_t>(max_tokens, uint64_t{sampled} + block_size + 1));
}

}  // namespace baton::kv

#endif  // BATON_KV_BLOCK_DEMAND_H_
