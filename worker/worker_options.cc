#include "worker/worker_options.h"

#include <string>

#include "common/status_macros.h"

namespace baton::worker {
namespace {

absl::Status Bad(const std::string& what) { return absl::InvalidArgumentError(what); }

}  // namespace

absl::Status WorkerOptions::Validate() const {
  if (epoch.IsZero()) return Bad("epoch must not be zero");
  if (role == v1::ROLE_UNSPECIFIED) return Bad("role must be given");
  if (vocab_size == 0) return Bad("vocab_size must be at least 1");
  if (context_length < 2) return Bad("context must be at least 2");
  BATON_RETURN_IF_ERROR(layout.Validate());
  if (pool_blocks.size() != layout.groups.size()) {
    return Bad("the pool needs one number of blocks for each KV group");
  }
  for (const uint32_t blocks : pool_blocks) {
    if (blocks == 0) return Bad("kv-blocks must be at least 1");
  }
  if (max_running == 0) return Bad("max-running must be at least 1");
  if (max_queue == 0) return Bad("max-queue must be at least 1");
  if (heartbeat <= Duration{0}) return Bad("heartbeat must be positive");
  if (lease < 2 * heartbeat) return Bad("lease-ms must be at least two heartbeats");
  if (reserve_patience <= Duration{0}) return Bad("reserve patience must be positive");
  return absl::OkStatus();
}

}  // namespace baton::worker
