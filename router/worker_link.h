// One worker address: keeps a session open, checks hellos, notices silence, counts Submits.
#ifndef BATON_ROUTER_WORKER_LINK_H_
#define BATON_ROUTER_WORKER_LINK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.pb.h"
#include "common/executor.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/silence_watch.h"
#include "router/circuit_breaker.h"
#include "router/core_options.h"
#include "router/worker_client.h"
#include "router/worker_view.h"

namespace baton::router {

inline constexpr uint32_t kWorkerProtocolVersion = 1;

// Owner thread: the executor's. Everything passed in must outlive it.
class WorkerLink : private WorkerSession::Listener {
 public:
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void OnWorkerReady(size_t worker) = 0;
    // Everything but hello and load, which are in view() already.
    virtual void OnWorkerEvent(size_t worker, const worker::v1::WorkerEvent& event) = 0;
    // After OnWorkerReady; view().ready is false now.
    virtual void OnWorkerLost(size_t worker) = 0;
    // After each message of the worker.
    virtual void OnWorkerTurn(size_t worker) = 0;
    // circuit() changed, and view().shunned with it.
    virtual void OnWorkerCircuit(size_t worker) = 0;
    // Prompts or streams of this router there changed.
    virtual void OnWorkerCounts(size_t worker) = 0;
  };

  WorkerLink(size_t index, const CoreOptions& options, std::string address,
             std::unique_ptr<WorkerClient> client, Executor& executor, Observer& observer,
             const Logger& log);
  ~WorkerLink() override;

  void Start() { Open(); }
  // Ends the session for good; the observer is not called any more.
  void Stop();

  // Nobody lists the address any more: an open session stays until it breaks and is not opened
  // again.
  void Retire();
  // The address is listed again.
  void Resume();
  bool retired() const { return retired_; }
  // Retired, and nothing is left to break.
  bool gone() const { return retired_ && session_ == nullptr; }

  const WorkerView& view() const { return view_; }
  CircuitBreaker::State circuit() const { return breaker_.state(); }
  const std::string& address() const { return address_; }

  // The calls below are dropped unless view().ready. `done` is called once, unless the link is
  // destroyed first.
  // `new_tokens`: of the prompt, not thought to be held there.
  void Submit(worker::v1::SubmitRequest request, uint64_t new_tokens,
              std::function<void(absl::Status)> done);
  void Attach(const AttemptId& attempt);
  // Goes out before the worker's hello as well: from our own hello on it takes reservations for us.
  // Repeated on a session that is opened soon after: the worker may not have heard it, and others
  // may still ask it for room.
  void Cancel(const AttemptId& attempt);

  // Of a request that is submitted there.
  [[nodiscard]] CircuitBreaker::Ticket TakeTicket() { return breaker_.Take(); }
  // Another worker came or went: it may have been the reason why requests failed here.
  void Reconsider() { breaker_.Reconsider(); }

  // A page of what its cache holds; the answer is an event.
  void AskForCachePage(uint32_t page);

  // This router's requests there, for placement and the gauge.
  // A prompt with so many new tokens, at least one, comes or, negative, goes.
  void AddPrompt(int64_t new_tokens);
  // A request of so many choices comes or, negative, goes.
  void AddStream(int64_t choices);

 private:
  struct LaterSubmit {
    uint64_t number;
    uint64_t new_tokens;
  };

  struct RecentCancel {
    Time when;
    AttemptId attempt;
  };

  void OnMessage(worker::v1::SessionResponse message) override;
  void OnClosed(absl::Status status) override;

  void SendCancel(const AttemptId& attempt);
  void DropOldCancels();
  void Open();
  void ScheduleOpen();
  void Beat();
  void Lose(const absl::Status& why);
  // Ends the session; the stream may be on the call stack, so it is destroyed by a later task.
  void DropSession(const absl::Status& why);
  absl::Status TakeHello(const worker::v1::WorkerHello& hello);
  void TakeLoad(const worker::v1::WorkerLoad& load);
  void Refuse(const absl::Status& why);
  void OnCircuit();

  const size_t index_;
  const CoreOptions& options_;
  const std::string address_;
  const std::unique_ptr<WorkerClient> client_;
  Executor& executor_;
  Observer& observer_;
  const Logger& log_;

  WorkerView view_;
  std::unique_ptr<WorkerSession> session_;
  uint64_t session_number_ = 0;
  uint64_t submit_number_ = 0;
  std::deque<LaterSubmit> later_;  // not in the last load report yet
  std::deque<RecentCancel> cancels_;
  uint64_t reported_prefill_tokens_ = 0;
  Duration heartbeat_{0};                // of the present session
  std::optional<SilenceWatch> silence_;  // of the present session
  Duration backoff_;
  bool failure_logged_ = false;
  bool retired_ = false;
  CircuitBreaker breaker_;
  TimerHandle beat_timer_;
  TimerHandle open_timer_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_WORKER_LINK_H_
