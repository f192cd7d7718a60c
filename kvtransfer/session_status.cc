#include "kvtransfer/session_status.h"

#include <string_view>

namespace baton::kvtransfer {
namespace {

constexpr std::string_view kStale = "STALE_EPOCH";
constexpr std::string_view kMismatch = "FINGERPRINT_MISMATCH";
constexpr std::string_view kExpired = "LEASE_EXPIRED";

}  // namespace

absl::Status StaleEpoch() {
  return absl::FailedPreconditionError("STALE_EPOCH: the session names another process");
}

absl::Status FingerprintMismatch() {
  return absl::FailedPreconditionError("FINGERPRINT_MISMATCH: layout or numerics differ");
}

absl::Status LeaseExpired() {
  return absl::DeadlineExceededError("LEASE_EXPIRED: nothing was heard for a lease");
}

Cause CauseOf(const absl::Status& status) {
  const std::string_view text(status.message().data(), status.message().size());
  if (text.substr(0, kStale.size()) == kStale) return worker::v1::CAUSE_STALE_EPOCH;
  if (text.substr(0, kMismatch.size()) == kMismatch) return worker::v1::CAUSE_FINGERPRINT_MISMATCH;
  if (text.substr(0, kExpired.size()) == kExpired) return worker::v1::CAUSE_LEASE_EXPIRED;
  return worker::v1::CAUSE_PEER_LOST;
}

}  // namespace baton::kvtransfer
