// Names of full KV blocks: a hash over a block's tokens and all tokens before it, under a root that
// stands for everything else that decides its bits and for who may share it. Workers and routers
// compute the same ones.
#ifndef BATON_KV_BLOCK_HASH_H_
#define BATON_KV_BLOCK_HASH_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/decoder_state.h"
#include "common/ids.h"

namespace baton::kv {

// What stands before the first block. `cache_namespace` is DecoderState's.
Digest RootHash(std::string_view cache_namespace);

// Of the block with these tokens behind the chain that ends in `parent`: XXH3-128 of the parent's
// low and high half and of each token, all little-endian. The same on every machine.
Digest BlockHash(const Digest& parent, std::span<const TokenId> tokens);

// Of the first `blocks` full blocks of `tokens`; or of as many as there are. About 1 ns per token.
std::vector<Digest> BlockHashes(const Digest& root, std::span<const TokenId> tokens,
                                uint32_t block_size, uint32_t blocks = UINT32_MAX);

}  // namespace baton::kv

#endif  // BATON_KV_BLOCK_HASH_H_
