// What a worker's reason for giving an attempt up means for the request.
#ifndef BATON_ROUTER_WORKER_CAUSE_H_
#define BATON_ROUTER_WORKER_CAUSE_H_

#include <string>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "router/request_state.h"

namespace baton::router {

enum class GiveUp {
  kTryAgain,  // another attempt may succeed
  kLost,      // one of the two workers lost the other
  kFailed,    // the request ends
};

// Whether a source (or else a sink) sends such events of an attempt at all.
bool Sends(bool source, worker::v1::WorkerEvent::EventCase event);

GiveUp Classify(worker::v1::Cause cause, absl::StatusCode code);

// What that is to the request.
FlowEvent EventOf(GiveUp verdict, bool source);

// The status a client gets when the request ends for it. `own` is the worker's own, OK when it
// named only a cause; `stage` ("prefill", "decode") begins the text.
absl::Status StatusOf(worker::v1::Cause cause, const absl::Status& own, const std::string& stage);

// Whether an answer to Submit, not OK, is no word of the worker: it was not reached or did not
// answer.
bool NotReached(const absl::Status& answer);

// Whether an answer to Submit, not OK, ends the request; else it is placed again.
bool SubmitFailed(const absl::Status& answer);

// Likewise, for an answer to Submit. Its words may be gRPC's own, which name addresses: clients get
// only those about their request.
absl::Status SubmitStatus(const absl::Status& answer, const std::string& stage);

}  // namespace baton::router

#endif  // BATON_ROUTER_WORKER_CAUSE_H_
