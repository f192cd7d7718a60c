#ifndef BATON_WORKER_TEST_EVENTS_H_
#define BATON_WORKER_TEST_EVENTS_H_

#include "baton/worker/v1/worker.pb.h"
#include "common/ids.h"
#include "proto/mapping/ids.h"

namespace baton::worker {

// The attempt an event is about; zeros for hello and load.
inline AttemptId AttemptOf(const v1::WorkerEvent& event) {
  switch (event.event_case()) {
    case v1::WorkerEvent::kStarted:
      return proto::Get(event.started().attempt());
    case v1::WorkerEvent::kFirstToken:
      return proto::Get(event.first_token().token().attempt());
    case v1::WorkerEvent::kToken:
      return proto::Get(event.token().attempt());
    case v1::WorkerEvent::kPromptLogprobs:
      return proto::Get(event.prompt_logprobs().attempt());
    case v1::WorkerEvent::kCachedPrompt:
      return proto::Get(event.cached_prompt().attempt());
    case v1::WorkerEvent::kHandedOff:
      return proto::Get(event.handed_off().attempt());
    case v1::WorkerEvent::kNoRoom:
      return proto::Get(event.no_room().attempt());
    case v1::WorkerEvent::kLost:
      return proto::Get(event.lost().attempt());
    case v1::WorkerEvent::kFailed:
      return proto::Get(event.failed().attempt());
    default:
      return {};
  }
}

}  // namespace baton::worker

#endif  // BATON_WORKER_TEST_EVENTS_H_
