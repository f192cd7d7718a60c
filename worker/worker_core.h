// The core of a worker in either role: its routers, its engine, its room, and what happens to a
// Submit, an Attach, a Cancel and the loss of a router. Single-threaded, no gRPC: the shell
// (worker_server.h) and the simulator drive it.
#ifndef BATON_WORKER_WORKER_CORE_H_
#define BATON_WORKER_WORKER_CORE_H_

#include <memory>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/random.h"
#include "common/time.h"
#include "engine/engine_metrics.h"
#include "engine/model_runner.h"
#include "engine/room_holder.h"
#include "kv/block_pool.h"
#include "kv/cache_event_log.h"
#include "kv/prefix_cache.h"
#include "kv/sliding_windows.h"
#include "kvtransfer/tombstones.h"
#include "text/vocab.h"
#include "worker/engine_mux.h"
#include "worker/local_runs.h"
#include "worker/role.h"
#include "worker/room.h"
#include "worker/router_sessions.h"
#include "worker/worker_options.h"

namespace baton::worker {

// Reasons at the start of the message of a FAILED_PRECONDITION from Submit.
inline constexpr const char* kReasonStaleSession = "STALE_SESSION";
inline constexpr const char* kReasonStaleEpoch = "STALE_EPOCH";
inline constexpr const char* kReasonTombstone = "TOMBSTONE";

// Call order: construct, SetRole, then the rest. Owner thread: the executor's.
class WorkerCore : private RouterSessions::Host, private engine::RoomHolder {
 public:
  // All must outlive the core.
  struct Environment {
    Executor& executor;
    Random& random;
    engine::ModelRunner& runner;
    const Vocab& vocab;
    MetricsRegistry& metrics;
    const Logger& log;
  };
  // `options` has passed Validate.
  WorkerCore(const WorkerOptions& options, const Environment& environment);
  ~WorkerCore() override;
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  // For the role's constructor; the role dies before the core.
  WorkerContext& context() { return context_; }
  void SetRole(Role* role) { role_ = role; }

  // A router opened a stream. The listener stays valid until the stream is destroyed.
  RouterStream::Listener* AcceptRouter(std::unique_ptr<RouterStream> stream) {
    return sessions_.Accept(std::move(stream));
  }

  // Checks, in this order: the epoch is ours, the session is open, no tombstone, not live, not
  // draining, valid for the model, room in the queue. See worker.proto for the codes.
  absl::Status Submit(const v1::SubmitRequest& request);

  // Takes no new work from now on; what is here goes on.
  void Drain();
  // Nothing is live and nothing is in flight.
  bool idle() const;

  v1::WorkerLoad Load() override;
  const kv::BlockPool& pool() const { return pool_; }
  // Null: off.
  const kv::PrefixCache* cache() const { return cache_.get(); }
  const WorkerOptions& options() const { return options_; }

 private:
  v1::WorkerHello Hello() const override;
  void OnAttach(const AttemptId& attempt) override;
  void OnCancel(const AttemptId& attempt) override;
  kv::CacheEventBatch CacheEventsFrom(uint64_t sequence, size_t most) const override;
  kv::CacheSnapshotPage CachePage(uint32_t begin, uint32_t most) const override;
  void OnRouterLost(const Epoch& router, v1::Cause cause) override;
  engine::GaveUp GiveUpYoungest(Time than) override { return role_->GiveUpYoungest(than); }
  void OnStepEnd();

  absl::Status CheckWho(const v1::SubmitRequest& request, const AttemptId& attempt) const;
  absl::StatusOr<Submission> Validated(const v1::SubmitRequest& request) const;
  std::unique_ptr<kv::PrefixCache> MakeCache();
  absl::Status CheckBlocksAtIdle() const;
  void CheckWhenIdle();
  void SelfCheck();
  uint32_t Waiting();  // and tells the engine, whose gauge counts them

  const WorkerOptions options_;
  const Environment env_;
  engine::EngineMetrics engine_metrics_;
  kv::BlockPool pool_;
  kv::PrefixCacheMetrics cache_metrics_;
  Counter violations_;
  kv::CacheEventLog cache_events_;
  const kv::SlidingWindows windows_;
  const std::unique_ptr<kv::PrefixCache> cache_;  // null: off
  Room room_;
  kvtransfer::Tombstones tombstones_;
  RouterSessions sessions_;
  EngineMux engine_;
  bool draining_ = false;
  WorkerContext context_;
  LocalRuns local_;
  Role* role_ = nullptr;
  bool was_idle_ = true;
  TimerHandle self_check_;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_WORKER_CORE_H_
