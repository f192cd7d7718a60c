// From the records of a benchmark to what people and programs read.
#ifndef BATON_CLIENT_BENCH_REPORT_H_
#define BATON_CLIENT_BENCH_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/bench/record.h"
#include "client/bench/statistics.h"

namespace baton::client {

// Seconds; absent: no limit.
struct Limits {
  std::optional<double> ttft;
  std::optional<double> itl;
};

struct Measured {
  Summary summary;
  std::vector<Bucket> histogram;
};

struct Report {
  size_t planned = 0;
  size_t ended = 0;
  size_t ok = 0;
  std::map<std::string, size_t> errors;
  double elapsed_seconds = 0;  // first scheduled start until the last end
  uint64_t prompt_tokens = 0;  // of requests with a first token
  uint64_t output_tokens = 0;  // of all requests, also those that failed later
  // Of requests that succeeded, from the scheduled start on: a late sender hides nothing.
  Measured ttft, end_to_end;
  Measured itl;
  // Of all requests: sent after their scheduled start by so much. Large: this client or its machine
  // is the bottleneck.
  Measured send_delay;
  // Of this process from start to end, all its threads; near the elapsed time times the cores means
  // that the client itself is the bottleneck.
  double client_cpu_seconds = 0;
  Limits limits;
  // Succeeded with TTFT within the limit and the mean of its gaps within the limit.
  size_t good = 0;
};

// client_cpu_seconds is left to the caller.
Report MakeReport(const std::vector<RequestRecord>& records, size_t planned, const Limits& limits);

// Seconds throughout.
nlohmann::json ToJson(const Report& report);
// Several lines with a histogram of TTFT and of the gaps.
std::string ToText(const Report& report);

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_REPORT_H_
