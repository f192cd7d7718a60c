// A trace against simulated prefill workers, placed by the router's own code: placement, extent
// index and cache feeds. Workers run one prompt after the other in the time of a cost model, keep
// what they computed in an LRU cache and say so in event batches; their load reports come every
// 250 ms and whenever a prompt begins or ends. Virtual time: the same options give the same result.
#ifndef BATON_BENCHMARKS_PLACEMENT_REPLAY_H_
#define BATON_BENCHMARKS_PLACEMENT_REPLAY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/placement.h"

namespace baton::benchmarks {

struct TraceRow {
  double arrival = 0;  // seconds
  uint64_t tokens = 0;
  // Of each piece of `ReplayOptions::piece_tokens`: stands for all tokens up to its end. The last
  // one may be shorter, or be missing when it is.
  std::vector<uint64_t> pieces;
};

// Lines with timestamp (ms), input_length and hash_ids, in any order; rows without a prompt are
// left out. NOT_FOUND, INVALID_ARGUMENT with the line.
absl::StatusOr<std::vector<TraceRow>> ReadTrace(const std::string& path);

// service = start + token * uncached + key * uncached * all tokens, in seconds
struct PrefillCost {
  double start = 0.020;
  double token = 0.06e-3;
  double key = 2e-9;
  double Seconds(uint64_t tokens, uint64_t cached) const {
    const auto uncached = static_cast<double>(tokens - cached);
    return start + token * uncached + key * uncached * static_cast<double>(tokens);
  }
};

struct ReplayOptions {
  size_t workers = 8;
  size_t cache_pieces = 3000;  // of each worker
  uint32_t piece_tokens = 512;
  double jitter = 0;  // seconds, uniform, added to every arrival
  double speed = 1;   // arrivals come so much faster
  uint64_t seed = 1;  // of the jitter
  PrefillCost cost{};
  // Workers report what they measured of steps of a piece each (engine/step_time_model), nothing
  // before the first; else what `cost` says.
  bool measured = false;
  double first_worker_slower = 1;  // times the cost; of worker 0
  double first_prompt_slower = 1;  // and once more, of its first prompt
  router::PlacementPolicy policy = router::PlacementPolicy::kPredictedSeconds;
};

struct ReplayResult {
  size_t requests = 0;
  double mean_ttft = 0;  // seconds from arrival to the end of the prompt
  double p90_ttft = 0;
  double hit_rate = 0;            // prompt tokens that were held when their prompt began, of all
  double predicted_hit_rate = 0;  // as placement had it
  size_t most_on_one = 0;         // requests of the worker with the most
  size_t on_first_worker = 0;     // of worker 0
};

ReplayResult Replay(std::vector<TraceRow> trace, const ReplayOptions& options);

}  // namespace baton::benchmarks

#endif  // BATON_BENCHMARKS_PLACEMENT_REPLAY_H_
