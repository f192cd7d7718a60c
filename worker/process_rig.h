// Real worker processes on loopback and a router's end of their API, for tests.
#ifndef BATON_WORKER_PROCESS_RIG_H_
#define BATON_WORKER_PROCESS_RIG_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "baton/worker/v1/worker.grpc.pb.h"
#include "common/decoder_state.h"
#include "common/event_loop.h"
#include "common/mutex.h"
#include "common/stream.h"

namespace baton::worker {

// One child process; killed when this object dies. It picks free ports and prints its ready line.
class WorkerProcess {
 public:
  // `role` is "prefill" or "decode". Reads until the ready line or the end of its stdout.
  WorkerProcess(const std::string& role, const std::vector<std::string>& args);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  bool ready() const { return !listen_.empty(); }
  const std::string& listen() const { return listen_; }
  const std::string& metrics() const { return metrics_; }
  const std::string& name() const { return name_; }
  std::string proc() const { return "/proc/" + std::to_string(pid_); }
  void Signal(int signal);
  // Waits for its end; the exit code, or -signal.
  int Wait();
  std::string StderrText() const;
  // The value of a sample as it stands in /metrics, labels included: "baton_x{a=\"b\"}". -1: none.
  double Metric(const std::string& sample) const;

 private:
  pid_t pid_ = -1;
  int stdout_ = -1;
  std::string stderr_path_;
  std::string listen_;
  std::string metrics_;
  std::string name_;
};

// One router's session with one worker over gRPC, with calls that wait. Any thread but its own.
class ProcessRouter : private Stream<v1::SessionRequest, v1::SessionResponse>::Listener {
 public:
  // Opens the session and waits for the worker's hello.
  ProcessRouter(const WorkerProcess& worker, const Epoch& router);
  ~ProcessRouter() override;

  const v1::WorkerHello& hello() const { return hello_; }
  v1::Sink AsSink() const;
  absl::Status Submit(const DecoderState& state, const std::vector<v1::Sink>& sinks = {});
  void Attach(const AttemptId& attempt);
  void Cancel(const AttemptId& attempt);

  // Events of an attempt so far.
  std::vector<v1::WorkerEvent> EventsOf(const AttemptId& attempt);
  // Waits until `done` says so of the attempt's events; false after 60 s.
  bool WaitFor(const AttemptId& attempt,
               const std::function<bool(const std::vector<v1::WorkerEvent>&)>& done);
  // Waits for a finish reason in a Token event, or the last event of another kind.
  std::vector<TokenId> Tokens(const AttemptId& attempt);
  bool WaitClosed();
  // Called on the session's thread for each event, before WaitFor sees it.
  void set_on_event(std::function<void(const v1::WorkerEvent&)> on_event);

 private:
  void OnMessage(v1::SessionResponse message) override;
  void OnClosed(absl::Status status) override;
  void Send(const v1::SessionRequest& request);
  void Beat();

  const Epoch router_;
  v1::WorkerService::Stub* const stub_;
  uint64_t submits_ = 0;
  v1::WorkerHello hello_;
  EventLoop loop_;
  std::unique_ptr<Stream<v1::SessionRequest, v1::SessionResponse>> stream_;  // loop's thread
  TimerHandle beat_;                                                         // loop's thread

  Mutex mutex_;
  CondVar changed_;
  std::vector<v1::WorkerEvent> events_ BATON_GUARDED_BY(mutex_);
  std::function<void(const v1::WorkerEvent&)> on_event_ BATON_GUARDED_BY(mutex_);
  bool said_hello_ BATON_GUARDED_BY(mutex_) = false;
  bool closed_ BATON_GUARDED_BY(mutex_) = false;
  bool call_over_ BATON_GUARDED_BY(mutex_) = false;
};

}  // namespace baton::worker

#endif  // BATON_WORKER_PROCESS_RIG_H_
