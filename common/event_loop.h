// The production Executor: one thread that runs tasks and timers.
#ifndef BATON_COMMON_EVENT_LOOP_H_
#define BATON_COMMON_EVENT_LOOP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/executor.h"
#include "common/mutex.h"
#include "common/time.h"

namespace baton {

// Start once, Stop once (the destructor stops as well). Tasks posted before Start wait for it.
// Post, TryPost and Now are for any thread; PostAt for the loop's own (before Start: the owner's).
class EventLoop : public Executor {
 public:
  struct Options {
    std::string name = "loop";  // the thread's name, 15 bytes of it
    // TryPost refuses beyond this many waiting tasks; Post never refuses.
    size_t max_queued = 65536;
    Duration turn_limit = std::chrono::milliseconds(1);
    // Called on the loop's thread after a task that took longer than turn_limit. Metric hook.
    std::function<void(Duration)> on_slow_turn;
  };

  explicit EventLoop(Options options);
  ~EventLoop() override;
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Start();
  // Runs what is queued and what that posts, drops the timers, joins. Later posts are dropped.
  // Never call it from a task of this loop.
  void Stop();

  void Post(std::function<void()> task) override;
  // False, and `task` is dropped, when the queue is full or the loop stopped: for new work only,
  // never for the end of admitted work.
  [[nodiscard]] bool TryPost(std::function<void()> task);
  [[nodiscard]] TimerHandle PostAt(Time when, std::function<void()> task) override;
  Time Now() const override;

  bool OnLoopThread() const { return std::this_thread::get_id() == loop_thread_.load(); }
  size_t queued() const;

 private:
  struct Timer {
    Time when;
    uint64_t order;
    std::shared_ptr<std::function<void()>> task;
  };
  static bool Later(const Timer& a, const Timer& b);

  void Run();
  // Blocks until there are tasks, a timer is due or the loop stops. False: stopped and drained.
  bool TakeReady(std::deque<std::function<void()>>& ready);
  void RunDueTimers();
  void RunTurn(const std::function<void()>& task);
  void DropCancelledTimers();

  const Options options_;

  mutable Mutex mutex_;
  CondVar wake_;
  std::deque<std::function<void()>> tasks_ BATON_GUARDED_BY(mutex_);
  bool stopping_ BATON_GUARDED_BY(mutex_) = false;

  // Loop thread only.
  std::vector<Timer> timers_;  // min-heap by (when, order)
  uint64_t next_order_ = 0;
  size_t sweep_at_ = 1024;

  // The default id while the loop is not running.
  std::atomic<std::thread::id> loop_thread_{};
  std::thread thread_;
};

}  // namespace baton

#endif  // BATON_COMMON_EVENT_LOOP_H_
