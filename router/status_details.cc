#include "router/status_details.h"

#include <chrono>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "router/error_reasons.h"

namespace baton::router {
namespace {

constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";
constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";

}  // namespace

absl::Status ErrorWithReason(absl::StatusCode code, std::string_view message,
                             std::string_view reason) {
  absl::Status status(code, absl::string_view(message.data(), message.size()));
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain(std::string(kErrorDomain));
  status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
  return status;
}

absl::Status BadField(std::string_view path, std::string_view description) {
  return BadField(path, description, kReasonInvalidField);
}

absl::Status BadField(std::string_view path, std::string_view description,
                      std::string_view reason) {
  const std::string message = std::string(path) + ": " + std::string(description);
  absl::Status status = ErrorWithReason(absl::StatusCode::kInvalidArgument, message, reason);
  google::rpc::BadRequest bad;
  auto* violation = bad.add_field_violations();
  violation->set_field(std::string(path));
  violation->set_description(std::string(description));
  status.SetPayload(kBadRequestUrl, absl::Cord(bad.SerializeAsString()));
  return status;
}

absl::Status WithRetryInfo(absl::Status status, Duration delay) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(
      std::chrono::duration_cast<std::chrono::seconds>(delay).count());
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>((delay % std::chrono::seconds(1)).count()));
  status.SetPayload(kRetryInfoUrl, absl::Cord(retry.SerializeAsString()));
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrorInfoUrl);
  google::rpc::ErrorInfo info;
  if (!payload.has_value() || !info.ParseFromString(std::string(*payload))) return "";
  return info.reason();
}

std::string SerializedRpcStatus(const absl::Status& status) {
  google::rpc::Status out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(std::string(status.message()));
  status.ForEachPayload([&out](absl::string_view url, const absl::Cord& payload) {
    auto* detail = out.add_details();
    detail->set_type_url(std::string(url));
    detail->set_value(std::string(payload));
  });
  return out.SerializeAsString();
}

}  // namespace baton::router
