// The sessions that routers hold with this worker: hello, heartbeats, lease, and one message per
// turn with everything that happened for a router (DESIGN section 4).
#ifndef BATON_WORKER_ROUTER_SESSIONS_H_
#define BATON_WORKER_ROUTER_SESSIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/metrics.h"
#include "common/stream.h"
#include "common/time.h"
#include "kv/cache_event.h"

namespace baton::worker {

using RouterStream = Stream<v1::SessionResponse, v1::SessionRequest>;

// State of a session x what happens:
//
//                 kNew (no hello yet)        kOpen                      ended
//  Hello          kOpen (a)                  protocol error             -
//  Heartbeat      protocol error             hold on                    -
//  Attach/Cancel  protocol error             host (b)                   -
//  CacheSnapshot  protocol error             a page, events from now on -
//  Silence        end, router not known      end, OnRouterLost          -
//  Closed         forget                     end, OnRouterLost          -
//  Emit           -                          in the next message        dropped
//
// "protocol error" ends the stream with FAILED_PRECONDITION or INVALID_ARGUMENT, for kOpen with
// OnRouterLost. (a) Another version is refused; a router that opens a second session has lost the
// first: OnRouterLost comes for it, because nothing re-attaches. (b) An attempt of another router
// is a protocol error.
//
// Owner thread: the executor's.
class RouterSessions {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    // Everything but the session's number.
    virtual v1::WorkerHello Hello() const = 0;
    // Everything but last_submit_number.
    virtual v1::WorkerLoad Load() = 0;
    virtual void OnAttach(const AttemptId& attempt) = 0;
    virtual void OnCancel(const AttemptId& attempt) = 0;
    // Of the prefix cache: its latest events, and what it holds. Without a cache there are none.
    virtual kv::CacheEventBatch CacheEventsFrom(uint64_t sequence, size_t most) const = 0;
    virtual kv::CacheSnapshotPage CachePage(uint32_t begin, uint32_t most) const = 0;
    // Its session ended (PEER_LOST) or fell silent (LEASE_EXPIRED): nothing of it may go on.
    virtual void OnRouterLost(const Epoch& router, v1::Cause cause) = 0;
  };

  struct Options {
    Duration heartbeat = std::chrono::seconds(1);
    Duration lease = std::chrono::seconds(10);
  };

  // All must outlive this object; `host` is not called back from the destructor.
  RouterSessions(const Options& options, Executor& executor, MetricsRegistry& metrics, Host& host);
  ~RouterSessions();
  RouterSessions(const RouterSessions&) = delete;
  RouterSessions& operator=(const RouterSessions&) = delete;

  // A router opened a stream. The listener stays valid until the stream is destroyed.
  RouterStream::Listener* Accept(std::unique_ptr<RouterStream> stream);

  bool IsOpen(const Epoch& router) const { return open_.count(router) != 0; }
  bool IsOpen(const Epoch& router, uint64_t session_number) const;
  // From now on load reports to this router include this Submit.
  void NoteSubmit(const Epoch& router, uint64_t submit_number);

  // Goes out with the next message to this router; dropped when it has no session.
  void Emit(const Epoch& router, v1::WorkerEvent event);
  // Sends what was emitted, and the load where it changed. Call at the end of a step; other turns
  // are flushed by themselves after Emit or Touch.
  void Flush();
  void Touch();

  // The cache has changed: routers that asked for a page of it hear so within kCacheEventDelay.
  void NoteCacheEvents();
  static constexpr Duration kCacheEventDelay = std::chrono::milliseconds(50);

  size_t open() const { return open_.size(); }

 private:
  class Session;
  void End(Session& session, const absl::Status& status, v1::Cause cause);
  void Beat();

  const Options options_;
  Executor& executor_;
  Host& host_;
  Gauge sessions_gauge_;
  Counter leases_expired_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;  // by order of arrival
  std::map<Epoch, Session*> open_;
  uint64_t next_session_ = 0;
  TimerHandle flush_;
  bool flush_pending_ = false;
  TimerHandle cache_events_;
  bool cache_events_pending_ = false;
  TimerHandle beat_;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_ROUTER_SESSIONS_H_
