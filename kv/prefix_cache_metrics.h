// Metrics of a worker's prefix cache.
#ifndef BATON_KV_PREFIX_CACHE_METRICS_H_
#define BATON_KV_PREFIX_CACHE_METRICS_H_

#include "common/metrics.h"

namespace baton::kv {

struct PrefixCacheMetrics {
  explicit PrefixCacheMetrics(MetricsRegistry& registry);

  Counter hits;           // requests that got blocks and found some of them here
  Counter misses;         // requests that might have, and found none
  Counter cached_tokens;  // of prompts, in blocks that were found
  Counter evictions;      // full blocks given up for room
};

}  // namespace baton::kv

#endif  // BATON_KV_PREFIX_CACHE_METRICS_H_
