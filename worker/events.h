// Makes the events that workers send to routers.
#ifndef BATON_WORKER_EVENTS_H_
#define BATON_WORKER_EVENTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/decoder_state.h"
#include "common/ids.h"
#include "engine/choice.h"

namespace baton::worker {

v1::Token MakeToken(const AttemptId& attempt, const engine::TokenEvent& event);
v1::WorkerEvent TokenEventOf(const AttemptId& attempt, const engine::TokenEvent& event);
v1::WorkerEvent PromptLogprobsEvent(const AttemptId& attempt, uint32_t position,
                                    const std::vector<TokenLogprobs>& logprobs);
v1::WorkerEvent CachedPromptEvent(const AttemptId& attempt, uint32_t tokens);
v1::WorkerEvent LostEvent(const AttemptId& attempt, v1::Cause cause);
v1::WorkerEvent NoRoomEvent(const AttemptId& attempt, v1::Cause cause);
v1::WorkerEvent FailedEvent(const AttemptId& attempt, const absl::Status& status, v1::Cause cause);
// The attempt's own deadline passed here.
v1::WorkerEvent ExpiredEvent(const AttemptId& attempt);

}  // namespace baton::worker

#endif  // BATON_WORKER_EVENTS_H_
