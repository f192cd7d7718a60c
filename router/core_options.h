#ifndef BATON_ROUTER_CORE_OPTIONS_H_
#define BATON_ROUTER_CORE_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/ids.h"
#include "common/time.h"
#include "router/circuit_breaker.h"
#include "router/extent_index.h"
#include "router/placement.h"
#include "router/request_state.h"

namespace baton::router {

struct WorkerAddress {
  std::string address;   // host:port of its gRPC server
  bool prefill = false;  // the role the operator expects; the worker's own word decides
};

struct WorkersState {
  size_t ready = 0;        // sessions that are open
  bool all_ready = false;  // every listed worker's is
  bool can_serve = false;  // a request would be placed
};

struct CoreOptions {
  // 128 random bits of this process.
  Epoch epoch;
  // Listed from the start; RouterCore::AddWorker lists more.
  std::vector<WorkerAddress> workers;
  // Hash of the vocabulary that text is made with; workers with another one are refused.
  std::optional<Digest> vocab_hash;

  Duration heartbeat = std::chrono::seconds(1);
  // A worker that said nothing for so long is lost.
  Duration worker_silence = std::chrono::seconds(4);
  // Between two attempts to open a session; doubles from the first to the second.
  Duration reconnect_min = std::chrono::milliseconds(100);
  Duration reconnect_max = std::chrono::seconds(2);
  // A Submit without an answer for so long is followed by Cancel and placed again.
  Duration submit_timeout = std::chrono::seconds(4);

  // Of a worker that fails requests while its session holds.
  CircuitBreaker::Options circuit;

  // Requests no worker has yet, and their prompt tokens; beyond either new ones are refused with
  // RESOURCE_EXHAUSTED. A prompt larger than all the tokens is taken when nothing else waits.
  size_t max_queue = 1024;
  uint64_t max_queue_tokens = 1 << 20;
  // Requests whose first token is predicted to come later than this are refused; 0: only those that
  // would miss their own deadline.
  Duration ttft_target{0};
  // What a refused client is told to wait: the predicted time until the queue has drained, within
  // these bounds; `retry_max` when nothing is known.
  Duration refusal_min = std::chrono::milliseconds(100);
  Duration refusal_max = std::chrono::seconds(60);
  // A step of priority counts as so much more waiting. Equal in all routers of a cluster.
  Duration age_credit = std::chrono::seconds(60);
  // An output token counts so many prompt tokens in the fairness between tenants.
  uint64_t output_token_weight = 2;
  // Tenants without live requests whose service is remembered.
  size_t max_idle_tenants = 10000;
  // Requests of this router without a first token that one worker may have.
  size_t prompt_window = 32;
  // Placements of one request that fail for other reasons than lack of room before it ends with the
  // last of them. Lack of room is waited out until the deadline.
  uint32_t max_attempts = 16;
  // Pause before a request is placed again after a refusal; doubles per attempt up to the second.
  Duration retry_min = std::chrono::milliseconds(20);
  Duration retry_max = std::chrono::seconds(1);
  // The end of a request waits so long for the source's report of its handoff, when tokens came
  // faster.
  Duration handoff_report_patience = std::chrono::milliseconds(100);
  // Sinks named in one Submit.
  size_t max_sinks = 3;
  // What makes a worker the better one for a prompt.
  PlacementPolicy placement = PlacementPolicy::kPredictedSeconds;
  // Most memory for knowing what workers hold of prompts (at least ExtentIndex::kLeastBytes); the
  // ends of the longest are forgotten first.
  size_t cache_index_bytes = size_t{64} << 20;
  // Used when the request has no max_tokens; the context may leave less.
  uint32_t default_max_tokens = 512;

  // For tests that count the cells of request_state.h; called before each move.
  std::function<void(RequestState, FlowEvent)> on_transition;

  // Called after workers came, went or began to drain; on the executor.
  std::function<void(const WorkersState&)> on_workers;

  // INVALID_ARGUMENT naming the option.
  absl::Status Validate() const;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_CORE_OPTIONS_H_
