#include "worker/role.h"

namespace baton::worker {

DecoderState StateAt(const Submission& submission, Time now) {
  DecoderState state = submission.state;
  state.age = now - submission.admitted_at;
  if (submission.deadline.has_value()) state.remaining = *submission.deadline - now;
  return state;
}

}  // namespace baton::worker
