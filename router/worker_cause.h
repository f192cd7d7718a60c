// What a worker's reason for giving an attempt up means for the request.
#ifndef BATON_ROUTER_WORKER_CAUSE_H_
#define BATON_ROUTER_WORKER_CAUSE_H_

#include <string>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"

namespace baton::router {

enum class GiveUp {
  kTryAgain,  // another attempt may succeed
  kLost,      // one of the two workers lost the other
  kFailed,    // the request ends
};

GiveUp Classify(worker::v1::Cause cause, absl::StatusCode code);

// The status a client gets when the request ends for it. `code` and `message` are the worker's own,
// kOk and empty when it named only a cause.
absl::Status StatusOf(worker::v1::Cause cause, absl::StatusCode code, const std::string& message);

}  // namespace baton::router

#endif  // BATON_ROUTER_WORKER_CAUSE_H_
