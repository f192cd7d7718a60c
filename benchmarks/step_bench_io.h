// The lines that step-bench reads and writes.
//
// A request: {"sequences": [{"count": 16, "prompt": 512, "filled": true, "max_tokens": 17,
// "choices": 1, "temperature": 0, "top_k": 0, "top_p": 1, "arrival": 0}], "step_tokens": 512,
// "max_running": 256, "group": 0}; all but "sequences" may be left out.
// An answer: {"steps": [[seconds, tokens], ...], "sequences": [[first, last], ...], "most_blocks":
// 528, "macs": {"Q4_1": 1}, "bytes": 2}, seconds since the run began, or {"error": ""}.
#ifndef BATON_BENCHMARKS_STEP_BENCH_IO_H_
#define BATON_BENCHMARKS_STEP_BENCH_IO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "benchmarks/engine_driver.h"

namespace baton::benchmarks {

struct StepRequest {
  std::vector<BenchSequence> sequences;
  RunOptions options;
};

// INVALID_ARGUMENT: not such an object, or a key that is not known.
absl::StatusOr<StepRequest> ParseStepRequest(const std::string& line);

std::string ToLine(const absl::StatusOr<Timeline>& timeline);

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_STEP_BENCH_IO_H_
