#include "kv/block_hash.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "common/check.h"
#include "common/hash.h"

namespace baton::kv {
namespace {

// Largest block size of a layout.
constexpr size_t kMaxBlockTokens = 256;

template <typename Number>
std::byte* PutLittleEndian(Number value, std::byte* out) {
  for (size_t i = 0; i < sizeof value; ++i) *out++ = static_cast<std::byte>(value >> (8 * i));
  return out;
}

}  // namespace

Digest RootHash(std::string_view cache_namespace) { return HashBytes(cache_namespace); }

Digest BlockHash(const Digest& parent, std::span<const TokenId> tokens) {
  std::array<std::byte, sizeof(Digest) + kMaxBlockTokens * sizeof(TokenId)> bytes;
  BATON_CHECK(tokens.size() <= kMaxBlockTokens);
  std::byte* end = PutLittleEndian(parent.hi, PutLittleEndian(parent.lo, bytes.data()));
  for (const TokenId token : tokens) end = PutLittleEndian(static_cast<uint32_t>(token), end);
  return HashBytes(std::span<const std::byte>(bytes.data(), end));
}

std::vector<Digest> BlockHashes(const Digest& root, std::span<const TokenId> tokens,
                                uint32_t block_size, uint32_t blocks) {
  const size_t count = std::min<size_t>(blocks, tokens.size() / block_size);
  std::vector<Digest> hashes;
  hashes.reserve(count);
  Digest parent = root;
  for (size_t i = 0; i < count; ++i) {
    parent = BlockHash(parent, tokens.subspan(i * block_size, block_size));
    hashes.push_back(parent);
  }
  return hashes;
}

}  // namespace baton::kv
