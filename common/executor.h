// The event loop under a core: everything a core does happens inside a task run by its Executor.
#ifndef BATON_COMMON_EXECUTOR_H_
#define BATON_COMMON_EXECUTOR_H_

#include <functional>
#include <memory>
#include <utility>

#include "common/time.h"

namespace baton {

// Cancels its timer when destroyed. Move-only. Owner thread: the executor's.
class TimerHandle {
 public:
  TimerHandle() = default;
  explicit TimerHandle(std::shared_ptr<std::function<void()>> task) : task_(std::move(task)) {}
  TimerHandle(TimerHandle&&) = default;
  TimerHandle& operator=(TimerHandle&& other) {
    if (this != &other) {
      Cancel();
      task_ = std::move(other.task_);
    }
    return *this;
  }
  ~TimerHandle() { Cancel(); }

  void Cancel() {
    if (task_ != nullptr) *task_ = nullptr;
    task_.reset();
  }

 private:
  // Shared with the executor's timer queue; an empty function there means "cancelled or done".
  std::shared_ptr<std::function<void()>> task_;
};

// Runs tasks one at a time, in the order posted; timers in the order of their times, ties in the
// order posted. Tasks never run inside Post/PostAt.
class Executor {
 public:
  virtual ~Executor() = default;

  // Thread-safe: this is how other threads reach a core.
  virtual void Post(std::function<void()> task) = 0;

  // Owner thread only. The task runs at or after `when` unless the handle is destroyed first.
  [[nodiscard]] virtual TimerHandle PostAt(Time when, std::function<void()> task) = 0;

  // Thread-safe, monotonic.
  virtual Time Now() const = 0;

  [[nodiscard]] TimerHandle PostAfter(Duration delay, std::function<void()> task) {
    return PostAt(Now() + delay, std::move(task));
  }
};

}  // namespace baton

#endif  // BATON_COMMON_EXECUTOR_H_
