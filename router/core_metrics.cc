#include "router/core_metrics.h"

namespace baton::router {

CoreMetrics::CoreMetrics(MetricsRegistry& registry)
    : inflight(registry.AddGauge("baton_router_inflight", "Live requests of this router by worker.",
                                 {"worker"})),
      running(
          registry.AddGauge("baton_requests_running", "Requests that have started and not ended.")
              .Get()),
      waiting(
          registry.AddGauge("baton_requests_waiting", "Requests admitted and not started.").Get()),
      requests(registry.AddCounter("baton_router_requests_total", "Requests that ended, by code.",
                                   {"code"})),
      queue_tokens(registry
                       .AddGauge("baton_router_queue_tokens",
                                 "Prompt tokens of the requests admitted and not started.")
                       .Get()),
      refusals(registry.AddCounter("baton_router_refusals_total",
                                   "Requests that admission refused, by reason.", {"reason"})),
      queue_seconds(registry.AddHistogram("baton_router_queue_seconds",
                                          "From the call until the first Submit, by priority.",
                                          LatencyBounds(), {"priority"})),
      prompt_tokens(
          registry.AddCounter("baton_prompt_tokens_total", "Prompt tokens taken in.").Get()),
      generation_tokens(
          registry.AddCounter("baton_generation_tokens_total", "Tokens generated.").Get()),
      attempts(
          registry
              .AddCounter("baton_router_attempts_total", "Placements, first ones and repetitions.")
              .Get()),
      circuit_open(registry.AddGauge("baton_router_circuit_open",
                                     "1 for a worker that failed requests and has not served one "
                                     "since.",
                                     {"worker"})),
      circuit_openings(registry
                           .AddCounter("baton_router_circuit_openings_total",
                                       "Times that requests began to keep away from a worker.")
                           .Get()),
      token_mismatches(
          registry
              .AddCounter("baton_router_token_mismatches_total",
                          "Tokens that contradict what the client saw or came where none may.")
              .Get()),
      odd_events(registry
                     .AddCounter("baton_router_odd_events_total",
                                 "Worker events that the protocol excludes; ignored.")
                     .Get()),
      time_to_first_token(registry
                              .AddHistogram("baton_time_to_first_token_seconds",
                                            "From the call until the first token left the core.",
                                            LatencyBounds())
                              .Get()),
      inter_token_latency(registry
                              .AddHistogram("baton_inter_token_latency_seconds",
                                            "Between two tokens of a choice.", LatencyBounds())
                              .Get()),
      stage_seconds(registry.AddHistogram(
          "baton_router_stage_seconds",
          "Where the time of a request went: queue, route, reserve_wait, prefill, handoff, "
          "first_decode_step.",
          LatencyBounds(), {"stage"})) {}

}  // namespace baton::router
