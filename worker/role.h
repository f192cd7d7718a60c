// What the two roles add to a worker, and what a worker gives them.
#ifndef BATON_WORKER_ROLE_H_
#define BATON_WORKER_ROLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/decoder_state.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/random.h"
#include "common/time.h"
#include "engine/room_holder.h"
#include "kv/prefix_cache.h"
#include "kv/sliding_windows.h"
#include "kvtransfer/tombstones.h"
#include "worker/engine_mux.h"
#include "worker/room.h"
#include "worker/router_sessions.h"
#include "worker/worker_options.h"

namespace baton::worker {

class Role;

// The shared half of a worker, as roles see it. Owner thread: the executor's.
struct WorkerContext {
  const WorkerOptions& options;
  Executor& executor;
  Random& random;
  MetricsRegistry& metrics;
  const Logger& log;
  RouterSessions& sessions;
  EngineMux& engine;
  Room& room;
  const kv::PrefixCache* cache;  // null: off
  const kv::SlidingWindows& windows;
  kvtransfer::Tombstones& tombstones;
  // No new work is taken.
  const bool& draining;
  // What this worker runs alone: an attempt is in one place only.
  const Role& alone;
};

// What a claim may find of a prompt, within its first `most` tokens. `prompt` must stay where it is
// until the claim is over.
inline std::optional<kv::PrefixQuery> PrefixOf(const WorkerContext& context,
                                               const std::string& cache_namespace,
                                               const std::vector<TokenId>& prompt, size_t most) {
  if (context.cache == nullptr) return std::nullopt;
  return context.cache->Query(cache_namespace, prompt, most);
}

// Tokens of it that are held now: what somebody who waits will hardly have to compute.
inline uint32_t HeldOf(const WorkerContext& context, const std::optional<kv::PrefixQuery>& prefix) {
  return prefix.has_value() ? context.cache->HeldTokens(*prefix) : 0;
}

// Of a prompt that is computed here: its last token makes the first logits, and its log
// probabilities are made of the logits of all.
inline size_t MostCached(const DecoderState& state) {
  return state.logprobs.prompt.has_value() ? 0 : state.prompt.size() - 1;
}

// One attempt as it came from a router, on the local clock.
struct Submission {
  DecoderState state;  // `age` and `remaining` as of `received`
  std::vector<v1::Sink> sinks;
  Time admitted_at;              // received - age
  std::optional<Time> deadline;  // received + remaining
};

// The state with `age` and `remaining` as of `now`.
DecoderState StateAt(const Submission& submission, Time now);

// What a worker has outside of the engine.
struct QueueLoad {
  uint32_t waiting = 0;
  uint64_t prefill_tokens = 0;  // of prompts that are not in the engine yet, less what is cached
};

// A set of attempts and what may happen to them. Every attempt ends by one function that gives
// everything back. Owner thread: the executor's.
class Role {
 public:
  virtual ~Role() = default;
  virtual bool Has(const AttemptId& attempt) const = 0;
  // The state is valid for the model; the attempt is not live and not a tombstone.
  virtual absl::Status Submit(Submission submission) = 0;
  virtual void Attach(const AttemptId& attempt) = 0;
  // Ends it in any state, without an event to the router, which asked for it.
  virtual void Cancel(const AttemptId& attempt) = 0;
  // Ends everything of this router.
  virtual void DropRouter(const Epoch& router, v1::Cause cause) = 0;
  virtual QueueLoad Queued() const = 0;
  virtual double transfer_bytes_per_second() const { return 0; }
  // engine::RoomHolder::GiveUpYoungest, of what it holds outside of the engine and may take back.
  virtual engine::GaveUp GiveUpYoungest(Time /*than*/) { return engine::GaveUp::kNobody; }
  // engine::Engine::Environment::coming.
  virtual uint32_t Coming() const { return 0; }
  // After the events of a step.
  virtual void OnStepEnd() {}
  // Attempts here, in any state; 0 at idle.
  virtual size_t live() const = 0;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_ROLE_H_
