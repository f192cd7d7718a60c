// 128-bit XXH3. Against accidents, not against people who choose the input.
#ifndef BATON_COMMON_HASH_H_
#define BATON_COMMON_HASH_H_

#include <cstddef>
#include <span>
#include <string_view>

#include "common/decoder_state.h"
#include "common/ids.h"

namespace baton {

Digest HashBytes(std::span<const std::byte> bytes);
Digest HashBytes(std::string_view bytes);

// The digest of a token list, extendable one token at a time: Extend(Extend(r, a), b) equals
// Extend(r, a + b) however the list is cut. Same value on every machine. About 5 ns per token.
Digest ExtendTokenChain(const Digest& parent, std::span<const TokenId> tokens);

inline Digest TokenChainHash(std::span<const TokenId> tokens) {
  return ExtendTokenChain(Digest{}, tokens);
}

}  // namespace baton

#endif  // BATON_COMMON_HASH_H_
