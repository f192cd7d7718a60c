// A deterministic world for tests: virtual time, many nodes, one thread. Events run in the order
// (time, order of scheduling), so the same inputs give the same run.
#ifndef BATON_COMMON_SIM_EXECUTOR_H_
#define BATON_COMMON_SIM_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/executor.h"
#include "common/time.h"
#include "common/worker_pool.h"

namespace baton {

class SimExecutor;

// Owns the queue of everything that will happen. Must outlive its executors.
class SimWorld {
 public:
  SimWorld() = default;
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  // The world's own time; a node sees it shifted by its offset.
  Time now() const { return now_; }

  // Events of no node: deliveries of a simulated network, faults, client arrivals.
  void At(Time when, std::function<void()> event);
  void After(Duration delay, std::function<void()> event) { At(now_ + delay, std::move(event)); }

  // Called after every event: check invariants here.
  void set_after_event(std::function<void()> hook) { after_event_ = std::move(hook); }

  // Runs the next event; false when there is none.
  bool RunOne();
  // Runs until nothing is left. False when that took more than `max_events` (timers that re-arm
  // themselves never end).
  [[nodiscard]] bool RunUntilIdle(uint64_t max_events = 10'000'000);
  // Runs what is due up to and including `when`, then moves the clock there.
  void RunUntil(Time when);
  void RunFor(Duration duration) { RunUntil(now_ + duration); }
  // Runs until `done()`; false when the world's time would pass `limit` or nothing is left.
  [[nodiscard]] bool RunUntilTrue(const std::function<bool()>& done, Time limit);

  uint64_t events_run() const { return events_run_; }
  size_t events_waiting() const { return events_.size(); }

 private:
  friend class SimExecutor;
  using Key = std::pair<Time, uint64_t>;
  struct Event {
    const SimExecutor* node = nullptr;  // null: the world's own
    std::function<void()> task;
    std::shared_ptr<std::function<void()>> timer;  // set instead of task
  };
  void Add(Time when, Event event);
  // What the node has to do, in its order, to when it runs again.
  void PutOff(const SimExecutor& node);
  void DropEventsOf(const SimExecutor* node);
  // Cancelled timers go without counting as events or moving the clock.
  void DropCancelled();

  Time now_{};
  uint64_t next_order_ = 0;
  uint64_t events_run_ = 0;
  std::map<Key, Event> events_;
  std::function<void()> after_event_;
};

// One life of one node. Kill() (or destruction) and nothing of it runs any more, not even what was
// posted before: make a new executor for its next life.
class SimExecutor : public Executor {
 public:
  SimExecutor(SimWorld& world, std::string name, Duration clock_offset = Duration{0});
  ~SimExecutor() override;
  SimExecutor(const SimExecutor&) = delete;
  SimExecutor& operator=(const SimExecutor&) = delete;

  void Post(std::function<void()> task) override;
  [[nodiscard]] TimerHandle PostAt(Time when, std::function<void()> task) override;
  Time Now() const override { return world_.now() + clock_offset_; }

  // What is posted from now on runs so much later, as behind a long turn: a real loop runs the
  // timers that are due first. Never less than before.
  void set_post_delay(Duration delay) { post_delay_ = delay; }

  // Does not run before the world's time `until`, as a stopped process: timers that fell due run
  // then, what was posted `unread` later, because the threads that read its sockets stood still
  // too.
  void StandStill(Time until, Duration unread);

  void Kill();
  bool alive() const { return alive_; }
  const std::string& name() const { return name_; }
  SimWorld& world() { return world_; }

 private:
  friend class SimWorld;
  SimWorld& world_;
  const std::string name_;
  const Duration clock_offset_;
  Duration post_delay_{0};
  Time timers_from_{};  // not before; the world's time
  Time posts_from_{};
  bool alive_ = true;
};

// Does the work as an event of the asking node after a fixed virtual time.
class InlineOffloader : public Offloader {
 public:
  explicit InlineOffloader(Duration cost = Duration{0}) : cost_(cost) {}
  [[nodiscard]] bool TryRun(Executor& reply_to, std::function<void()> work,
                            std::function<void()> done) override;
  // From now on refuse everything, as a full queue would.
  void set_full(bool full) { full_ = full; }

 private:
  const Duration cost_;
  bool full_ = false;
};

}  // namespace baton

#endif  // BATON_COMMON_SIM_EXECUTOR_H_
