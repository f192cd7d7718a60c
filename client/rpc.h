// What every command that calls a router needs: a stub, and an error as one line.
#ifndef BATON_CLIENT_RPC_H_
#define BATON_CLIENT_RPC_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "baton/v1/inference.grpc.pb.h"

namespace baton::client {

// Connects in the background; each call makes a connection of its own.
std::unique_ptr<v1::InferenceService::Stub> MakeStub(const std::string& target);

// "RESOURCE_EXHAUSTED".
const char* CodeName(grpc::StatusCode code);
// The reason of its ErrorInfo; empty: it has none.
std::string ReasonOf(const grpc::Status& status);
// "error: CODE REASON: message\n".
std::string ErrorLine(const grpc::Status& status);

}  // namespace baton::client

#endif  // BATON_CLIENT_RPC_H_
