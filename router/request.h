// What goes into the router's core and what comes out of it: token ids, no text.
#ifndef BATON_ROUTER_REQUEST_H_
#define BATON_ROUTER_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/decoder_state.h"
#include "common/ids.h"
#include "common/time.h"

namespace baton::router {

inline constexpr int kMinPriority = -4;
inline constexpr int kMaxPriority = 4;

// What a prompt's KV blocks are called depends on these two of a worker.
struct BlockNaming {
  uint32_t block_size = 0;
  Digest numerics_id;
  friend bool operator==(const BlockNaming&, const BlockNaming&) = default;
};
struct BlockNames {
  BlockNaming naming;
  std::vector<Digest> names;  // of the full blocks
};

// Validated and tokenized (validation.h); the seed has been drawn.
struct RequestSpec {
  std::string request_id;  // for logs
  std::string tenant;      // empty: a tenant like any other
  std::string cache_salt;  // shares cached prefixes with equal ones of its tenant alone
  bool bypass_cache = false;
  int priority = 0;
  std::vector<TokenId> prompt;
  std::vector<BlockNames> block_names;  // those that are known already (prompt_names.h)
  SamplingParams sampling;
  // Capped by the core to what the context of the serving workers leaves; 0: the core's default.
  StopParams stop;
  LogprobParams logprobs;
  uint32_t n = 1;        // choices that the client gets
  uint32_t best_of = 0;  // so many are generated, and the best n returned; at most n: all are
  // Token by token; otherwise one message has the whole answer.
  bool streamed = true;
  std::optional<Time> deadline;
  // When the client's call came in, before tokenizing; the start of every timing.
  Time arrived;

  // Choices to generate, 1 to kMaxChoices.
  uint32_t choices() const { return std::max(n, best_of); }
  bool ranked() const { return best_of > n; }
};

enum class Finish { kNone, kStop, kLength };

// Output log probabilities of one message, the tops of all positions together: it stays under what
// a client receives.
inline constexpr uint64_t kMaxLogprobsInOneMessage = 500'000;

// A token the client has not seen yet. Positions of a choice come in order, each once; those of
// different choices in any order.
struct TokenEvent {
  uint32_t choice = 0;
  uint32_t position = 0;  // absolute: prompt length + index
  TokenId token = 0;
  uint64_t visible_bytes = 0;                            // never falls
  Finish finish = Finish::kNone;                         // set in the choice's last event
  std::optional<TokenLogprobs> logprobs = std::nullopt;  // when asked for, or choices are ranked
};

// DESIGN section 12: time_to_first_token = queue + route + reserve_wait + prefill; handoff and
// first_decode_step make up the gap between tokens 1 and 2.
struct RequestTimings {
  Duration queue{0};         // here (tokenizing included) and in the worker's queue
  Duration route{0};         // Submit until the worker answered
  Duration reserve_wait{0};  // at the sink
  Duration prefill{0};
  Duration handoff{0};
  Duration first_decode_step{0};
  Duration time_to_first_token{0};
  Duration total{0};
};

struct RequestSummary {
  RequestTimings timings;
  uint32_t completion_tokens = 0;  // of all choices
  uint32_t cached_tokens = 0;      // of the prompt: not computed, in the attempt that ended
  std::string prefill_worker;      // empty: the decode worker ran the prompt
  std::string decode_worker;       // empty: the first tokens ended the request
};

// One request's consumer. Called on the core's executor, never inside a call into the core.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // Once, before the first token: the request passed admission.
  virtual void OnAdmitted() = 0;
  // Only when asked for: of the prompt's tokens but the first, in order, each once, all of them
  // before the first token.
  virtual void OnPromptLogprobs(std::vector<TokenLogprobs> /*logprobs*/) {}
  virtual void OnToken(const TokenEvent& event) = 0;
  // Exactly once, last. Not OK: a status with its details (status_details.h).
  virtual void OnFinished(const absl::Status& status, const RequestSummary& summary) = 0;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_REQUEST_H_
