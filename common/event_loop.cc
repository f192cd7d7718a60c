#include "common/event_loop.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/clock.h"

namespace baton {

EventLoop::EventLoop(Options options) : options_(std::move(options)) {}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Start() {
  BATON_CHECK(!thread_.joinable());
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), options_.name.substr(0, 15).c_str());
}

void EventLoop::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  if (!thread_.joinable()) return;
  BATON_CHECK(!OnLoopThread());
  thread_.join();
}

void EventLoop::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    // While stopping, only the loop's own tasks may still add work: that is the drain.
    if (stopping_ && !OnLoopThread()) return;
    tasks_.push_back(std::move(task));
  }
  wake_.NotifyOne();
}

bool EventLoop::TryPost(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || tasks_.size() >= options_.max_queued) return false;
    tasks_.push_back(std::move(task));
  }
  wake_.NotifyOne();
  return true;
}

TimerHandle EventLoop::PostAt(Time when, std::function<void()> task) {
  BATON_CHECK(loop_thread_.load() == std::thread::id() || OnLoopThread());
  auto shared = std::make_shared<std::function<void()>>(std::move(task));
  if (timers_.size() >= sweep_at_) DropCancelledTimers();
  timers_.push_back({when, next_order_++, shared});
  std::push_heap(timers_.begin(), timers_.end(), Later);
  return TimerHandle(std::move(shared));
}

Time EventLoop::Now() const { return SteadyNow(); }

size_t EventLoop::queued() const {
  MutexLock lock(mutex_);
  return tasks_.size();
}

bool EventLoop::Later(const Timer& a, const Timer& b) {
  return a.when != b.when ? a.when > b.when : a.order > b.order;
}

void EventLoop::Run() {
  loop_thread_ = std::this_thread::get_id();
  std::deque<std::function<void()>> ready;
  while (TakeReady(ready)) {
    RunDueTimers();
    for (; !ready.empty(); ready.pop_front()) RunTurn(ready.front());
  }
  // A handle may outlive the loop and points at its function, so empty them all: nothing that a
  // timer captured lives longer than the loop's thread.
  for (Timer& timer : timers_) std::exchange(*timer.task, nullptr);
  timers_.clear();
  loop_thread_ = std::thread::id();
}

bool EventLoop::TakeReady(std::deque<std::function<void()>>& ready) {
  MutexLock lock(mutex_);
  while (tasks_.empty() && !stopping_) {
    if (timers_.empty()) {
      wake_.Wait(mutex_);
    } else if (timers_.front().when <= Now() || !wake_.WaitUntil(mutex_, timers_.front().when)) {
      break;
    }
  }
  ready.swap(tasks_);
  return !ready.empty() || !stopping_;
}

void EventLoop::RunDueTimers() {
  const Time now = Now();
  while (!timers_.empty() && timers_.front().when <= now) {
    std::pop_heap(timers_.begin(), timers_.end(), Later);
    const Timer timer = std::move(timers_.back());
    timers_.pop_back();
    // Taken out first: the task may destroy its own handle, which empties the shared function.
    const std::function<void()> task = std::exchange(*timer.task, nullptr);
    if (task) RunTurn(task);
  }
}

void EventLoop::RunTurn(const std::function<void()>& task) {
  const Time start = Now();
  task();
  const Duration took = Now() - start;
  if (took > options_.turn_limit && options_.on_slow_turn) options_.on_slow_turn(took);
}

void EventLoop::DropCancelledTimers() {
  std::erase_if(timers_, [](const Timer& timer) { return *timer.task == nullptr; });
  std::make_heap(timers_.begin(), timers_.end(), Later);
  sweep_at_ = std::max<size_t>(1024, 2 * timers_.size());
}

}  // namespace baton
