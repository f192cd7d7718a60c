#include "router/worker_cause.h"

#include "router/error_reasons.h"
#include "router/status_details.h"

namespace baton::router {

using worker::v1::Cause;
using worker::v1::WorkerEvent;

bool Sends(bool source, WorkerEvent::EventCase event) {
  switch (event) {
    case WorkerEvent::kStarted:
    case WorkerEvent::kFirstToken:
    case WorkerEvent::kHandedOff:
    case WorkerEvent::kNoRoom:
      return source;
    case WorkerEvent::kToken:
      return !source;
    case WorkerEvent::kCachedPrompt:
    case WorkerEvent::kPromptLogprobs:
    case WorkerEvent::kLost:
    case WorkerEvent::kFailed:
      return true;
    default:
      return false;
  }
}

GiveUp Classify(Cause cause, absl::StatusCode code) {
  switch (cause) {
    case worker::v1::CAUSE_NO_ROOM:
    case worker::v1::CAUSE_PREEMPTED:
    case worker::v1::CAUSE_FINGERPRINT_MISMATCH:
    case worker::v1::CAUSE_CHECKSUM_MISMATCH:
    case worker::v1::CAUSE_MISSING_PIECE:
    case worker::v1::CAUSE_DRAINING:
    case worker::v1::CAUSE_NO_SESSION:
    case worker::v1::CAUSE_RELEASED:
    case worker::v1::CAUSE_TOMBSTONE:
      return GiveUp::kTryAgain;
    case worker::v1::CAUSE_PEER_LOST:
    case worker::v1::CAUSE_LEASE_EXPIRED:
    case worker::v1::CAUSE_STALE_EPOCH:
      return GiveUp::kLost;
    case worker::v1::CAUSE_UNSPECIFIED:
      return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kResourceExhausted
                 ? GiveUp::kTryAgain
                 : GiveUp::kFailed;
    default:
      return GiveUp::kFailed;
  }
}

FlowEvent EventOf(GiveUp verdict, bool source) {
  switch (verdict) {
    case GiveUp::kTryAgain:
      return source ? FlowEvent::kSourceTryAgain : FlowEvent::kSinkTryAgain;
    case GiveUp::kLost:
      return source ? FlowEvent::kSourceLost : FlowEvent::kSinkLost;
    case GiveUp::kFailed:
      break;
  }
  return source ? FlowEvent::kSourceFailed : FlowEvent::kSinkFailed;
}

absl::Status StatusOf(Cause cause, const absl::Status& own, const std::string& stage) {
  absl::StatusCode code = own.code();
  const std::string name = worker::v1::Cause_IsValid(cause) ? worker::v1::Cause_Name(cause) : "?";
  const std::string text = stage + ": " +
                           (own.message().empty() ? "the worker gave the request up: " + name
                                                  : std::string(own.message()));
  switch (Classify(cause, code)) {
    case GiveUp::kTryAgain:
      return cause == worker::v1::CAUSE_NO_ROOM || cause == worker::v1::CAUSE_PREEMPTED ||
                     code == absl::StatusCode::kResourceExhausted
                 ? ErrorWithReason(absl::StatusCode::kResourceExhausted, text, kReasonNoRoom)
                 : ErrorWithReason(absl::StatusCode::kUnavailable, text, kReasonWorkerFailed);
    case GiveUp::kLost:
      return ErrorWithReason(absl::StatusCode::kUnavailable, text, kReasonWorkerLost);
    case GiveUp::kFailed:
      break;
  }
  if (cause == worker::v1::CAUSE_DEADLINE) {
    return ErrorWithReason(absl::StatusCode::kDeadlineExceeded, text, kReasonDeadline);
  }
  if (cause == worker::v1::CAUSE_CANCELLED) {
    return ErrorWithReason(absl::StatusCode::kCancelled, text, kReasonCancelled);
  }
  if (code == absl::StatusCode::kOk || code == absl::StatusCode::kUnknown) {
    code = absl::StatusCode::kInternal;
  }
  return ErrorWithReason(code, text, kReasonWorkerFailed);
}

bool NotReached(const absl::Status& answer) {
  return absl::IsUnavailable(answer) || absl::IsDeadlineExceeded(answer);
}

bool SubmitFailed(const absl::Status& answer) {
  return absl::IsInvalidArgument(answer) || absl::IsInternal(answer);
}

absl::Status SubmitStatus(const absl::Status& answer, const std::string& stage) {
  if (SubmitFailed(answer)) {
    const auto own = absl::InternalError("the worker failed to take the request");
    return StatusOf(worker::v1::CAUSE_UNSPECIFIED, absl::IsInternal(answer) ? own : answer, stage);
  }
  if (absl::IsResourceExhausted(answer)) {
    return ErrorWithReason(absl::StatusCode::kResourceExhausted, stage + ": the workers are full",
                           kReasonNoRoom);
  }
  return ErrorWithReason(absl::StatusCode::kUnavailable, stage + ": no worker took the request",
                         kReasonNoWorker);
}

}  // namespace baton::router
