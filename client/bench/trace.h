// Recorded workloads: when requests came and how long they were.
#ifndef BATON_CLIENT_BENCH_TRACE_H_
#define BATON_CLIENT_BENCH_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::client {

struct TraceRow {
  double at_seconds = 0;  // 0 in a trace without times
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
};

struct Trace {
  std::vector<TraceRow> rows;  // ascending by time; equal times in the file's order
  bool timed = false;
  size_t skipped = 0;  // rows whose prompt or answer is empty
};

// Two formats, told apart by the first character:
//   lines of JSON objects with timestamp (ms), input_length and output_length; other keys are not
//   looked at;
//   CSV whose header names input_tokens, output_tokens and, when it has times, arrival_us, in any
//   order.
// INVALID_ARGUMENT with `name` and the line for anything else, and for a trace without a row.
absl::StatusOr<Trace> ParseTrace(const std::string& name, const std::string& text);
// The same from a file.
absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_TRACE_H_
