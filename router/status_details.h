// Statuses that carry google.rpc details as payloads; grpc_status.h puts them on the wire.
#ifndef BATON_ROUTER_STATUS_DETAILS_H_
#define BATON_ROUTER_STATUS_DETAILS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/time.h"

namespace baton::router {

inline constexpr std::string_view kErrorDomain = "baton";

// With an ErrorInfo of `reason`, one of error_reasons.h.
absl::Status ErrorWithReason(absl::StatusCode code, std::string_view message,
                             std::string_view reason);

// INVALID_ARGUMENT with a BadRequest naming the field by its path in the request.
absl::Status BadField(std::string_view path, std::string_view description);
absl::Status BadField(std::string_view path, std::string_view description, std::string_view reason);

// The same status with a RetryInfo.
absl::Status WithRetryInfo(absl::Status status, Duration delay);

// The ErrorInfo's reason; empty without one.
std::string ReasonOf(const absl::Status& status);

// Serialized google.rpc.Status with all payloads, for the grpc-status-details-bin trailer.
std::string SerializedRpcStatus(const absl::Status& status);

}  // namespace baton::router

#endif  // BATON_ROUTER_STATUS_DETAILS_H_
