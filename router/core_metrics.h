// What the router's core counts (docs/metrics.md).
#ifndef BATON_ROUTER_CORE_METRICS_H_
#define BATON_ROUTER_CORE_METRICS_H_

#include "common/metrics.h"

namespace baton::router {

struct CoreMetrics {
  explicit CoreMetrics(MetricsRegistry& registry);

  GaugeFamily& inflight;  // {worker}
  Gauge running;
  Gauge waiting;
  CounterFamily& requests;  // {code}
  Gauge queue_tokens;
  CounterFamily& refusals;         // {reason}
  HistogramFamily& queue_seconds;  // {priority}
  Counter prompt_tokens;
  Counter generation_tokens;
  Counter attempts;
  GaugeFamily& circuit_open;  // {worker}
  Counter circuit_openings;
  Counter token_mismatches;
  Counter odd_events;
  Histogram time_to_first_token;
  Histogram inter_token_latency;
  HistogramFamily& stage_seconds;  // {stage}
};

}  // namespace baton::router

#endif  // BATON_ROUTER_CORE_METRICS_H_
