#include "kv/prefix_cache_metrics.h"

#include <string>

namespace baton::kv {
namespace {

Counter Requests(MetricsRegistry& registry, const char* result) {
  return registry
      .AddCounter("baton_prefix_cache_requests_total",
                  "Requests that looked for a cached prefix when they got their blocks: hit, miss.",
                  {"result"})
      .With({result});
}

}  // namespace

PrefixCacheMetrics::PrefixCacheMetrics(MetricsRegistry& registry)
    : hits(Requests(registry, "hit")),
      misses(Requests(registry, "miss")),
      cached_tokens(registry
                        .AddCounter("baton_prefix_cached_tokens_total",
                                    "Prompt tokens whose KV blocks were found in the prefix cache.")
                        .Get()),
      evictions(registry
                    .AddCounter("baton_prefix_cache_evictions_total",
                                "Full blocks that the prefix cache gave up for room.")
                    .Get()) {}

}  // namespace baton::kv
