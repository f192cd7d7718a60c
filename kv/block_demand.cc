#include "kv/block_demand.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/checked.h"
#include "common/status_macros.h"

namespace baton::kv {

absl::StatusOr<BlockPlaces> PlacesNeeded(uint64_t prompt_tokens, uint32_t n, uint32_t max_tokens,
                                         uint32_t block_size) {
  BATON_CHECK(n >= 1 && max_tokens >= 1 && block_size >= 1);
  const uint64_t shared = prompt_tokens / block_size;
  const uint64_t own = BlocksFor(prompt_tokens % block_size + max_tokens - 1, block_size);
  const std::optional<uint64_t> choices = CheckedMul<uint64_t>(own, n);
  const std::optional<uint64_t> total =
      choices.has_value() ? CheckedAdd(*choices, shared) : std::nullopt;
  const std::optional<uint32_t> blocks =
      total.has_value() ? CheckedCast<uint32_t>(*total) : std::nullopt;
  if (!blocks.has_value()) {
    return absl::OutOfRangeError("a prompt of " + std::to_string(prompt_tokens) + " tokens with " +
                                 std::to_string(n) + " choices of " + std::to_string(max_tokens) +
                                 " tokens needs 2^32 blocks or more");
  }
  return BlockPlaces{static_cast<uint32_t>(shared), n, static_cast<uint32_t>(own)};
}

absl::StatusOr<uint32_t> BlocksNeeded(uint64_t prompt_tokens, uint32_t n, uint32_t max_tokens,
                                      uint32_t block_size) {
  BATON_ASSIGN_OR_RETURN(const BlockPlaces places,
                         PlacesNeeded(prompt_tokens, n, max_tokens, block_size));
  return places.total();
}

}  // namespace baton::kv
