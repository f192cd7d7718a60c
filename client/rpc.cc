#include "client/rpc.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace baton::client {
namespace {

constexpr int kMaxMessageBytes = 16 << 20;
// A router that vanished without a word is noticed after twice as long.
constexpr int kKeepaliveMs = 5000;

}  // namespace

std::unique_ptr<v1::InferenceService::Stub> MakeStub(const std::string& target) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return v1::InferenceService::NewStub(
      grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
}

const char* CodeName(grpc::StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= 0 && code <= 16 ? kNames[code] : "UNKNOWN";
}

std::string ReasonOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return "";
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (detail.type_url().ends_with("google.rpc.ErrorInfo") &&
        info.ParseFromString(detail.value())) {
      return info.reason();
    }
  }
  return "";
}

std::string ErrorLine(const grpc::Status& status) {
  std::string line = "error: ";
  line += CodeName(status.error_code());
  const std::string reason = ReasonOf(status);
  if (!reason.empty()) line += " " + reason;
  return line + ": " + status.error_message() + "\n";
}

}  // namespace baton::client
