// What a benchmark will send, decided before it starts: the same options give the same plan.
#ifndef BATON_CLIENT_BENCH_PLAN_H_
#define BATON_CLIENT_BENCH_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/bench/lengths.h"
#include "client/bench/trace.h"

namespace baton::client {

struct PlanOptions {
  // Closed loop: so many at a time, times are not planned. Absent: open loop.
  std::optional<uint32_t> concurrency;
  // Requests per second of a Poisson process. Absent: the trace's times.
  std::optional<double> rate;
  // Absent: one for each row of the trace; without a trace it must be given.
  std::optional<size_t> requests;
  // Absent with a trace: the trace's lengths.
  std::optional<Lengths> prompt_tokens;
  std::optional<Lengths> output_tokens;
  // The trace's clock runs so many times faster.
  double speed = 1;
  // Seconds of the trace's clock; each time gets a uniform delay below it (for clocks that tick
  // slowly, whose every tick would be a burst).
  double jitter = 0;
  // Longer ones are cut to these, prompts first; what is cut is counted. context: prompt and answer
  // together.
  uint32_t max_prompt_tokens = kMaxLength;
  uint32_t max_output_tokens = kMaxLength;
  uint32_t context = 2 * kMaxLength;
  uint64_t seed = 0;
};

struct PlannedRequest {
  double at_seconds = 0;  // after the start; 0 in a closed loop
  uint32_t prompt_tokens = 1;
  uint32_t output_tokens = 1;
};

struct Plan {
  std::vector<PlannedRequest> requests;  // ascending by time
  size_t cut = 0;                        // whose lengths were cut
};

// `trace` may be null; it is repeated from its start when `requests` is larger (only where its
// times are not used). INVALID_ARGUMENT when the options do not say when or how long.
absl::StatusOr<Plan> MakePlan(const PlanOptions& options, const Trace* trace);

// Token ids of the index-th request, uniform in [0, vocabulary).
std::vector<int32_t> MakePrompt(uint64_t seed, size_t index, uint32_t tokens, uint32_t vocabulary);

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_PLAN_H_
