// Where a request goes: a pure function of what is known about the workers.
#ifndef BATON_ROUTER_PLACEMENT_H_
#define BATON_ROUTER_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/time.h"
#include "router/worker_view.h"

namespace baton::router {

// What makes one worker better than another for a prompt. The others are what it is measured
// against
// (./bench placement).
enum class PlacementPolicy {
  // Seconds until the prompt is done there: those that are queued, its own with what the worker
  // holds of it taken off, and the transfer of what the sink does not hold.
  kPredictedSeconds,
  kLeastWork,  // the same without looking at what anybody holds
  // Blocks, of this prompt and of ours that are in flight there, that it did not hold.
  kQueuedAndNewBlocks,
};

struct PlacementRequest {
  uint64_t prompt_tokens = 0;
  uint32_t n = 1;           // choices to generate
  uint32_t max_tokens = 1;  // of each
  // Workers that refused this request lately: taken only when nobody else is left.
  std::set<size_t> avoid;
  // Prefill workers that reached none of their decode workers for this request: never taken. When
  // no other is left a decode worker serves alone.
  std::set<size_t> cut_off;
  // Prompt tokens whose KV each worker holds, as far as is known; by worker, or empty.
  std::span<const uint32_t> cached_tokens{};
};

struct PlacementOptions {
  size_t max_sinks = 3;
  uint32_t prompt_window = 32;
  // Learned from finished transfers; 0: unknown, transfers count as free.
  double kv_bytes_per_token = 0;
  PlacementPolicy policy = PlacementPolicy::kPredictedSeconds;
  Time now{};
};

enum class PlacementVerdict {
  kPlaced,
  kWait,       // everybody it fits has its window of prompts full
  kNoWorker,   // nobody serves
  kNeverFits,  // nobody's pool or context is large enough
};

struct Placement {
  PlacementVerdict verdict = PlacementVerdict::kNoWorker;
  std::optional<size_t> source;  // absent: sinks[0] runs the whole request alone
  std::vector<size_t> sinks;     // best first
  // Of the prompt, held by whoever computes it as far as is known; at least one token is left.
  uint64_t cached_tokens = 0;
  // kNeverFits: what is needed and the largest there is, of whichever falls short.
  uint64_t needed_blocks = 0;
  uint64_t largest_pool = 0;
};

// Indices into `workers`. Shunned ones are taken only to decode, when nobody else is left. Least
// cost first. Prefill workers within a twentieth are equal: then fewer of our requests, who got no
// prompt for longest, the lower index. Decode workers within about a fifth are, where one request
// more does not count at who holds most of the prompt: then who holds more of it, and the same. A
// prefix that many ask for spreads by itself: where it is held the queue grows until computing it
// elsewhere is sooner.
//
// Who looks slow gets no prompts, so it would look slow for ever, and its first prompt may have met
// a cold machine or a busy one. So one that has nothing to do counts as fast as the best while its
// figures rest on fewer than kFewSteps steps, and else once after so long a pause that all such
// trials together delay prompts by at most 1/kTrialPause of the time, as far as is predicted.
inline constexpr uint64_t kFewSteps = 8;
inline constexpr double kTrialPause = 20;
Placement Place(std::span<const WorkerView* const> workers, const PlacementRequest& request,
                const PlacementOptions& options);

}  // namespace baton::router

#endif  // BATON_ROUTER_PLACEMENT_H_
