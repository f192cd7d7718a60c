#include "router/attempt_state.h"

#include "router/cache_namespace.h"

namespace baton::router {

LogprobParams LogprobsWanted(const RequestSpec& spec) {
  LogprobParams wanted = spec.logprobs;
  if (spec.ranked() && !wanted.output.has_value()) wanted.output = 0;
  return wanted;
}

DecoderState StateOf(const RequestSpec& spec, const CoreOptions& options, const AttemptId& attempt,
                     const Digest& numerics_id, Time now) {
  DecoderState state;
  state.attempt = attempt;
  state.sampling = spec.sampling;
  state.stop = spec.stop;
  state.logprobs = LogprobsWanted(spec);
  state.prompt = spec.prompt;
  state.choices.resize(spec.choices());
  state.cache_namespace = CacheNamespace(spec, numerics_id);
  // The lowest priority has no credit, so that an age is never negative.
  state.age = now - spec.arrived + options.age_credit * (spec.priority - kMinPriority);
  if (spec.deadline.has_value()) state.remaining = *spec.deadline - now;
  return state;
}

}  // namespace baton::router
