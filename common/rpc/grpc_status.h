// The one place where absl::Status and grpc::Status meet. The codes have the same numbers.
#ifndef BATON_COMMON_RPC_GRPC_STATUS_H_
#define BATON_COMMON_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace baton::rpc {

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()),
                      std::string(status.message()));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace baton::rpc

#endif  // BATON_COMMON_RPC_GRPC_STATUS_H_
