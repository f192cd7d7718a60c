#include "router/cache_namespace.h"

#include <cstdint>
#include <initializer_list>

#include "common/hash.h"

namespace baton::router {
namespace {

void AppendNumber(uint64_t value, std::string& out) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

}  // namespace

// With the length before each text, so that no two of them read alike when joined.
std::string CacheNamespace(const RequestSpec& spec, const Digest& numerics_id) {
  if (spec.bypass_cache) return {};
  std::string text;
  for (const uint64_t half : {numerics_id.lo, numerics_id.hi}) AppendNumber(half, text);
  for (const std::string* part : {&spec.tenant, &spec.cache_salt}) {
    AppendNumber(part->size(), text);
    text += *part;
  }
  const Digest digest = HashBytes(text);
  std::string out;
  for (const uint64_t half : {digest.lo, digest.hi}) AppendNumber(half, out);
  return out;
}

}  // namespace baton::router
