// Where a request goes: a pure function of what is known about the workers.
#ifndef BATON_ROUTER_PLACEMENT_H_
#define BATON_ROUTER_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "router/worker_view.h"

namespace baton::router {

struct PlacementRequest {
  uint64_t prompt_tokens = 0;
  uint32_t n = 1;           // choices to generate
  uint32_t max_tokens = 1;  // of each
  // Workers that refused this request lately: taken only when nobody else is left.
  std::set<size_t> avoid;
  // Prefill workers that reached none of their decode workers for this request: never taken. When
  // no other is left a decode worker serves alone.
  std::set<size_t> cut_off;
};

struct PlacementOptions {
  size_t max_sinks = 3;
  uint32_t prompt_window = 32;
  // Learned from finished transfers; 0: unknown, transfers count as free.
  double kv_bytes_per_token = 0;
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
  // kNeverFits: what is needed and the largest there is, of whichever falls short.
  uint64_t needed_blocks = 0;
  uint64_t largest_pool = 0;
};

// Indices into `workers`. Least predicted work first; ties go to the worker with fewer of our
// requests, then to the lower index.
Placement Place(std::span<const WorkerView* const> workers, const PlacementRequest& request,
                const PlacementOptions& options);

}  // namespace baton::router

#endif  // BATON_ROUTER_PLACEMENT_H_
