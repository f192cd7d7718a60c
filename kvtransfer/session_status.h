// How the end of a control session says why: reasons at the beginning of its status message.
#ifndef BATON_KVTRANSFER_SESSION_STATUS_H_
#define BATON_KVTRANSFER_SESSION_STATUS_H_

#include "absl/status/status.h"
#include "kvtransfer/cause.h"

namespace baton::kvtransfer {

absl::Status StaleEpoch();           // FAILED_PRECONDITION, "STALE_EPOCH..."
absl::Status FingerprintMismatch();  // FAILED_PRECONDITION, "FINGERPRINT_MISMATCH..."
absl::Status LeaseExpired();         // DEADLINE_EXCEEDED, "LEASE_EXPIRED..."

// CAUSE_PEER_LOST when the status says none of these.
Cause CauseOf(const absl::Status& status);

}  // namespace baton::kvtransfer

#endif  // BATON_KVTRANSFER_SESSION_STATUS_H_
