#include "common/hash.h"

#include <array>
#include <cstdint>

#include "xxhash.h"

namespace baton {
namespace {

void PutLittleEndian(uint64_t value, size_t num_bytes, unsigned char* out) {
  for (size_t i = 0; i < num_bytes; ++i) out[i] = static_cast<unsigned char>(value >> (8 * i));
}

Digest Xxh3(const void* data, size_t n) {
  const XXH128_hash_t hash = XXH3_128bits(data, n);
  return Digest{hash.high64, hash.low64};
}

}  // namespace

Digest HashBytes(std::span<const std::byte> bytes) { return Xxh3(bytes.data(), bytes.size()); }

Digest HashBytes(std::string_view bytes) { return Xxh3(bytes.data(), bytes.size()); }

Digest ExtendTokenChain(const Digest& parent, std::span<const TokenId> tokens) {
  Digest chain = parent;
  std::array<unsigned char, 20> link;
  for (const TokenId token : tokens) {
    PutLittleEndian(chain.lo, 8, link.data());
    PutLittleEndian(chain.hi, 8, link.data() + 8);
    PutLittleEndian(static_cast<uint32_t>(token), 4, link.data() + 16);
    chain = Xxh3(link.data(), link.size());
  }
  return chain;
}

}  // namespace baton
