#include "client/bench/runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/clock.h"

namespace baton::client {
namespace {

constexpr Duration kBetweenProgress = std::chrono::seconds(1);

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

std::vector<RequestRecord> Runner::Run(const Plan& plan) {
  start_ = SteadyNow();
  next_progress_ = start_ + kBetweenProgress;
  for (;;) {
    switch (WaitForNext(plan)) {
      case Next::kStart:
        StartNext(plan);
        break;
      case Next::kCancel:
        cancelled_ = true;
        options_.cancel_all();
        break;
      case Next::kProgress:
        ReportProgress();
        break;
      case Next::kEnd: {
        MutexLock lock(mutex_);
        return std::move(records_);
      }
    }
  }
}

std::optional<Time> Runner::NextStart(const Plan& plan) const {
  if (started_ == plan.requests.size()) return std::nullopt;
  if (!options_.concurrency.has_value()) {
    return start_ + Seconds(plan.requests[started_].at_seconds);
  }
  const bool full = started_ - records_.size() >= *options_.concurrency;
  return full ? std::nullopt : std::optional<Time>(start_);
}

Runner::Next Runner::WaitForNext(const Plan& plan) {
  MutexLock lock(mutex_);
  for (;;) {
    const size_t running = started_ - records_.size();
    if (interrupted_ && !cancelled_) return Next::kCancel;
    if (running == 0 && (interrupted_ || started_ == plan.requests.size())) return Next::kEnd;
    const Time now = SteadyNow();
    const std::optional<Time> start = interrupted_ ? std::nullopt : NextStart(plan);
    if (start.has_value() && *start <= now) return Next::kStart;
    if (next_progress_ <= now) return Next::kProgress;
    changed_.WaitUntil(mutex_, std::min(start.value_or(next_progress_), next_progress_));
  }
}

void Runner::StartNext(const Plan& plan) {
  size_t index = 0;
  {
    MutexLock lock(mutex_);
    index = started_++;
  }
  const PlannedRequest& planned = plan.requests[index];
  RequestRecord record;
  record.scheduled =
      options_.concurrency.has_value() ? SteadyNow() : start_ + Seconds(planned.at_seconds);
  record.sent = record.scheduled;
  record.prompt_tokens = planned.prompt_tokens;
  record.wanted_tokens = planned.output_tokens;
  options_.start(index, std::move(record),
                 [this](RequestRecord ended) { Ended(std::move(ended)); });
}

void Runner::Ended(RequestRecord record) {
  MutexLock lock(mutex_);
  if (!record.error.empty()) ++failed_;
  records_.push_back(std::move(record));
  // Under the lock: Run may return, and this object go, as soon as it is free.
  changed_.NotifyOne();
}

void Runner::ReportProgress() {
  next_progress_ += kBetweenProgress;
  if (!options_.on_progress) return;
  Progress progress;
  progress.seconds = ToSeconds(SteadyNow() - start_);
  {
    MutexLock lock(mutex_);
    progress.started = started_;
    progress.ended = records_.size();
    progress.failed = failed_;
  }
  options_.on_progress(progress);
}

void Runner::Interrupt() {
  MutexLock lock(mutex_);
  interrupted_ = true;
  changed_.NotifyOne();
}

bool Runner::interrupted() const {
  MutexLock lock(mutex_);
  return interrupted_;
}

}  // namespace baton::client
