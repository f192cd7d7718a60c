#include "engine/engine_metrics.h"

#include <string>

namespace baton::engine {

namespace {

std::vector<Gauge> BlockGauges(MetricsRegistry& registry) {
  GaugeFamily& family = registry.AddGauge(
      "baton_kv_blocks", "KV blocks of this worker by state; the sum is the pool.", {"state"});
  std::vector<Gauge> gauges;
  for (size_t i = 0; i < kv::kNumBlockStates; ++i) {
    gauges.push_back(
        family.With({std::string(kv::BlockStateName(static_cast<kv::BlockState>(i)))}));
  }
  return gauges;
}

}  // namespace

EngineMetrics::EngineMetrics(MetricsRegistry& registry)
    : kv_blocks(BlockGauges(registry)),
      requests_running(
          registry.AddGauge("baton_requests_running", "Sequences in the batch of this worker.")
              .Get()),
      requests_waiting(registry
                           .AddGauge("baton_requests_waiting",
                                     "Requests that wait for blocks or for a place in the batch.")
                           .Get()),
      requests_preempted(
          registry
              .AddGauge("baton_requests_preempted",
                        "Of those that wait: sequences that gave their blocks up to older ones.")
              .Get()),
      preemptions(registry
                      .AddCounter("baton_preemptions_total",
                                  "Times that a sequence gave its blocks up to an older one.")
                      .Get()),
      recomputed_tokens(registry
                            .AddCounter("baton_recomputed_tokens_total",
                                        "Tokens computed again after a preemption; what the cache "
                                        "still held is not among them.")
                            .Get()),
      prompt_tokens(
          registry.AddCounter("baton_prompt_tokens_total", "Prompt tokens computed.").Get()),
      generation_tokens(
          registry.AddCounter("baton_generation_tokens_total", "Tokens sampled.").Get()),
      rest_seconds(registry
                       .AddCounter("baton_step_rest_seconds_total",
                                   "Time in which few decodes left their cores to the prompts of "
                                   "those that will join them.")
                       .Get()),
      step_seconds(registry
                       .AddHistogram("baton_step_seconds",
                                     "Time from submitting a step to its end.", LatencyBounds())
                       .Get()),
      step_prediction_ratio(
          registry
              .AddHistogram("baton_step_prediction_ratio",
                            "Time of a step over what the worker had predicted for it.",
                            {0.25, 0.5, 0.65, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 4, 8})
              .Get()) {}

void EngineMetrics::SetBlocks(const kv::BlockCounts& counts) {
  for (size_t i = 0; i < kv_blocks.size(); ++i) kv_blocks[i].Set(counts[i]);
}

}  // namespace baton::engine
