// Metrics of an engine and its block pool.
#ifndef BATON_ENGINE_ENGINE_METRICS_H_
#define BATON_ENGINE_ENGINE_METRICS_H_

#include <vector>

#include "common/metrics.h"
#include "kv/block_pool.h"

namespace baton::engine {

struct EngineMetrics {
  explicit EngineMetrics(MetricsRegistry& registry);

  void SetBlocks(const kv::BlockCounts& counts);

  std::vector<Gauge> kv_blocks;  // by kv::BlockState
  Gauge requests_running;
  Gauge requests_waiting;
  Gauge requests_preempted;
  Counter preemptions;
  Counter recomputed_tokens;
  Counter prompt_tokens;
  Counter generation_tokens;
  Counter rest_seconds;
  Histogram step_seconds;
  Histogram step_prediction_ratio;
};

}  // namespace baton::engine

#endif  // BATON_ENGINE_ENGINE_METRICS_H_
