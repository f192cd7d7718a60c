#include "worker/worker_options.h"

#include <bit>

namespace baton::worker {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

}  // namespace

absl::Status WorkerOptions::Validate() const {
  if (epoch.IsZero()) return Bad("epoch must not be zero");
  if (role == v1::ROLE_UNSPECIFIED) return Bad("role must be given");
  if (vocab_size == 0) return Bad("vocab_size must be at least 1");
  if (context_length < 2) return Bad("context must be at least 2");
  if (!std::has_single_bit(block_size) || block_size < 16 || block_size > 256) {
    return Bad("block-size must be a power of two from 16 to 256, not " +
               std::to_string(block_size));
  }
  if (pool_blocks.empty()) return Bad("the pool needs a group");
  for (const uint32_t blocks : pool_blocks) {
    if (blocks == 0) return Bad("kv-blocks must be at least 1");
  }
  if (layer_groups.empty()) return Bad("the layout needs a layer");
  for (const kv::GroupId group : layer_groups) {
    if (group >= pool_blocks.size()) return Bad("a layer names a group without a pool");
  }
  if (step_tokens == 0) return Bad("step-tokens must be at least 1");
  if (max_running == 0) return Bad("max-running must be at least 1");
  if (max_queue == 0) return Bad("max-queue must be at least 1");
  if (heartbeat <= Duration{0}) return Bad("heartbeat must be positive");
  if (lease < 2 * heartbeat) return Bad("lease-ms must be at least two heartbeats");
  if (reserve_patience <= Duration{0}) return Bad("reserve patience must be positive");
  return absl::OkStatus();
}

}  // namespace baton::worker
