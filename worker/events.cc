#include "worker/events.h"

#include <string>

#include "proto/mapping/decoder_state.h"
#include "proto/mapping/ids.h"

namespace baton::worker {
namespace {

v1::FinishReason ReasonOf(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case engine::FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case engine::FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

}  // namespace

v1::Token MakeToken(const AttemptId& attempt, const engine::TokenEvent& event) {
  v1::Token token;
  proto::Set(attempt, *token.mutable_attempt());
  token.set_choice(event.choice);
  token.set_position(event.position);
  token.set_token(event.token);
  token.set_visible_bytes(event.visible_bytes);
  token.set_finish_reason(ReasonOf(event.finish_reason));
  if (event.logprobs.has_value()) proto::Set(*event.logprobs, *token.mutable_logprobs());
  return token;
}

v1::WorkerEvent TokenEventOf(const AttemptId& attempt, const engine::TokenEvent& event) {
  v1::WorkerEvent out;
  *out.mutable_token() = MakeToken(attempt, event);
  return out;
}

v1::WorkerEvent PromptLogprobsEvent(const AttemptId& attempt, uint32_t position,
                                    const std::vector<TokenLogprobs>& logprobs) {
  v1::WorkerEvent out;
  v1::PromptLogprobs& event = *out.mutable_prompt_logprobs();
  proto::Set(attempt, *event.mutable_attempt());
  event.set_position(position);
  for (const TokenLogprobs& one : logprobs) proto::Set(one, *event.add_logprobs());
  return out;
}

v1::WorkerEvent CachedPromptEvent(const AttemptId& attempt, uint32_t tokens) {
  v1::WorkerEvent out;
  proto::Set(attempt, *out.mutable_cached_prompt()->mutable_attempt());
  out.mutable_cached_prompt()->set_tokens(tokens);
  return out;
}

v1::WorkerEvent LostEvent(const AttemptId& attempt, v1::Cause cause) {
  v1::WorkerEvent out;
  proto::Set(attempt, *out.mutable_lost()->mutable_attempt());
  out.mutable_lost()->set_cause(cause);
  return out;
}

v1::WorkerEvent NoRoomEvent(const AttemptId& attempt, v1::Cause cause) {
  v1::WorkerEvent out;
  proto::Set(attempt, *out.mutable_no_room()->mutable_attempt());
  out.mutable_no_room()->set_cause(cause);
  return out;
}

v1::WorkerEvent FailedEvent(const AttemptId& attempt, const absl::Status& status, v1::Cause cause) {
  v1::WorkerEvent out;
  proto::Set(attempt, *out.mutable_failed()->mutable_attempt());
  out.mutable_failed()->set_code(status.raw_code());
  out.mutable_failed()->set_message(std::string(status.message()));
  out.mutable_failed()->set_cause(cause);
  return out;
}

v1::WorkerEvent ExpiredEvent(const AttemptId& attempt) {
  return FailedEvent(attempt, absl::DeadlineExceededError("the deadline passed at the worker"),
                     v1::CAUSE_DEADLINE);
}

}  // namespace baton::worker
