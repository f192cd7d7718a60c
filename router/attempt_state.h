// What workers are given of a request.
#ifndef BATON_ROUTER_ATTEMPT_STATE_H_
#define BATON_ROUTER_ATTEMPT_STATE_H_

#include "common/decoder_state.h"
#include "common/ids.h"
#include "common/time.h"
#include "router/core_options.h"
#include "router/request.h"

namespace baton::router {

// Choices are ranked by their log probabilities.
LogprobParams LogprobsWanted(const RequestSpec& spec);

// The state that an attempt begins with, on workers with this numerics_id.
DecoderState StateOf(const RequestSpec& spec, const CoreOptions& options, const AttemptId& attempt,
                     const Digest& numerics_id, Time now);

}  // namespace baton::router

#endif  // BATON_ROUTER_ATTEMPT_STATE_H_
