// The flags of `baton bench`.
#ifndef BATON_CLIENT_BENCH_BENCH_OPTIONS_H_
#define BATON_CLIENT_BENCH_BENCH_OPTIONS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/bench/plan.h"
#include "client/bench/report.h"
#include "client/bench/trace.h"
#include "common/time.h"

namespace baton::client {

struct BenchOptions {
  std::string target;
  std::string model;
  std::string trace_path;
  std::optional<Trace> trace;  // read already
  PlanOptions plan;            // context is the model's, filled in later
  Limits limits;
  float temperature = 0;
  std::optional<Duration> timeout;
  size_t connections = 4;
  bool json = false;
  bool progress = false;
};

// INVALID_ARGUMENT names the flag, its value and the limit.
absl::StatusOr<BenchOptions> ParseBenchOptions(const std::vector<std::string>& args);

// "250ms", "0.25s" or, in milliseconds, "250": seconds above 0.
absl::StatusOr<double> ParseLimit(const std::string& flag, const std::string& text);

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_BENCH_OPTIONS_H_
