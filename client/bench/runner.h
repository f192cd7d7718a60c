// Carries out a plan: starts each request when it is due and gathers the records.
#ifndef BATON_CLIENT_BENCH_RUNNER_H_
#define BATON_CLIENT_BENCH_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/bench/plan.h"
#include "client/bench/record.h"
#include "common/mutex.h"

namespace baton::client {

struct Progress {
  double seconds = 0;  // since the start
  size_t started = 0;
  size_t ended = 0;
  size_t failed = 0;
};

struct RunnerOptions {
  // Closed loop: so many at a time. Absent: each at its planned time, however many run.
  std::optional<uint32_t> concurrency;
  // Starts plan.requests[index]; `done` is called once, on any thread, also before it returns.
  std::function<void(size_t index, RequestRecord record, std::function<void(RequestRecord)> done)>
      start;
  // Ends what has been started.
  std::function<void()> cancel_all;
  // About once a second, on Run's thread; may be null.
  std::function<void(const Progress&)> on_progress;
};

class Runner {
 public:
  explicit Runner(RunnerOptions options) : options_(std::move(options)) {}

  // Returns when all that was started has ended. One call.
  std::vector<RequestRecord> Run(const Plan& plan);

  // Any thread: starts nothing more and cancels what runs.
  void Interrupt();
  bool interrupted() const;

 private:
  enum class Next { kStart, kCancel, kProgress, kEnd };
  Next WaitForNext(const Plan& plan);
  // When the next request may start; absent: when another has ended.
  std::optional<Time> NextStart(const Plan& plan) const BATON_REQUIRES(mutex_);
  void StartNext(const Plan& plan);
  void Ended(RequestRecord record);
  void ReportProgress();

  const RunnerOptions options_;
  Time start_;
  Time next_progress_;
  bool cancelled_ = false;  // Run's thread

  mutable Mutex mutex_;
  CondVar changed_;
  bool interrupted_ BATON_GUARDED_BY(mutex_) = false;
  size_t started_ BATON_GUARDED_BY(mutex_) = 0;
  size_t failed_ BATON_GUARDED_BY(mutex_) = 0;
  std::vector<RequestRecord> records_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton::client

#endif  // BATON_CLIENT_BENCH_RUNNER_H_
