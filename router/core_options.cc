#include "router/core_options.h"

#include <string>

namespace baton::router {

absl::Status CoreOptions::Validate() const {
  if (epoch.IsZero()) return absl::InvalidArgumentError("epoch: not drawn");
  if (max_queue < 1) return absl::InvalidArgumentError("max_queue: at least 1");
  if (max_queue_tokens < 1) return absl::InvalidArgumentError("max_queue_tokens: at least 1");
  if (ttft_target < Duration{0}) return absl::InvalidArgumentError("ttft_target: negative");
  if (age_credit < Duration{0} || age_credit > std::chrono::hours(24)) {
    return absl::InvalidArgumentError("age_credit: must be in [0, 24 h]");
  }
  if (prompt_window < 1) return absl::InvalidArgumentError("prompt_window: at least 1");
  if (max_attempts < 1) return absl::InvalidArgumentError("max_attempts: at least 1");
  if (max_sinks < 1) return absl::InvalidArgumentError("max_sinks: at least 1");
  if (cache_index_bytes < ExtentIndex::kLeastBytes) {
    return absl::InvalidArgumentError("cache_index_bytes: at least " +
                                      std::to_string(ExtentIndex::kLeastBytes));
  }
  if (default_max_tokens < 1) return absl::InvalidArgumentError("default_max_tokens: at least 1");
  if (heartbeat <= Duration{0} || worker_silence <= heartbeat) {
    return absl::InvalidArgumentError("worker_silence: must be longer than heartbeat");
  }
  return absl::OkStatus();
}

}  // namespace baton::router
