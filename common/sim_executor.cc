#include "common/sim_executor.h"

#include <algorithm>
#include <vector>

namespace baton {

void SimWorld::At(Time when, std::function<void()> event) {
  Event added;
  added.task = std::move(event);
  Add(when, std::move(added));
}

void SimWorld::Add(Time when, Event event) {
  // The past is now: a node whose clock is ahead may ask for a time that has gone by.
  events_.emplace(Key(std::max(when, now_), next_order_++), std::move(event));
}

void SimWorld::DropCancelled() {
  while (!events_.empty()) {
    const auto& timer = events_.begin()->second.timer;
    if (timer == nullptr || *timer != nullptr) return;
    events_.erase(events_.begin());
  }
}

void SimWorld::DropEventsOf(const SimExecutor* node) {
  // Destroyed only after the queue is whole again: what a task captured may cancel timers.
  std::vector<std::function<void()>> dropped;
  for (auto it = events_.begin(); it != events_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second.task));
    if (it->second.timer != nullptr) {
      dropped.push_back(std::exchange(*it->second.timer, nullptr));
    }
    it = events_.erase(it);
  }
}

void SimWorld::PutOff(const SimExecutor& node) {
  std::vector<std::pair<Time, Event>> later;
  for (auto it = events_.begin(); it != events_.end();) {
    const Time from = it->second.timer != nullptr ? node.timers_from_ : node.posts_from_;
    if (it->second.node != &node || it->first.first >= from) {
      ++it;
      continue;
    }
    later.emplace_back(from, std::move(it->second));
    it = events_.erase(it);
  }
  for (auto& [when, event] : later) Add(when, std::move(event));
}

bool SimWorld::RunOne() {
  DropCancelled();
  if (events_.empty()) return false;
  now_ = events_.begin()->first.first;
  Event event = std::move(events_.begin()->second);
  events_.erase(events_.begin());
  // Taken out first: the task may destroy its own handle, which empties the shared function.
  if (event.timer != nullptr) event.task = std::exchange(*event.timer, nullptr);
  event.task();
  ++events_run_;
  if (after_event_) after_event_();
  return true;
}

bool SimWorld::RunUntilIdle(uint64_t max_events) {
  for (uint64_t i = 0; i < max_events; ++i) {
    if (!RunOne()) return true;
  }
  DropCancelled();
  return events_.empty();
}

void SimWorld::RunUntil(Time when) {
  for (DropCancelled(); !events_.empty() && events_.begin()->first.first <= when; DropCancelled()) {
    RunOne();
  }
  now_ = std::max(now_, when);
}

bool SimWorld::RunUntilTrue(const std::function<bool()>& done, Time limit) {
  while (!done()) {
    DropCancelled();
    if (events_.empty() || events_.begin()->first.first > limit) return false;
    RunOne();
  }
  return true;
}

SimExecutor::SimExecutor(SimWorld& world, std::string name, Duration clock_offset)
    : world_(world), name_(std::move(name)), clock_offset_(clock_offset) {}

SimExecutor::~SimExecutor() { Kill(); }

void SimExecutor::Post(std::function<void()> task) {
  if (!alive_) return;
  SimWorld::Event event;
  event.node = this;
  event.task = std::move(task);
  world_.Add(std::max(world_.now() + post_delay_, posts_from_), std::move(event));
}

TimerHandle SimExecutor::PostAt(Time when, std::function<void()> task) {
  if (!alive_) return TimerHandle();
  SimWorld::Event event;
  event.node = this;
  event.timer = std::make_shared<std::function<void()>>(std::move(task));
  TimerHandle handle(event.timer);
  world_.Add(std::max(when - clock_offset_, timers_from_), std::move(event));
  return handle;
}

void SimExecutor::StandStill(Time until, Duration unread) {
  timers_from_ = std::max(timers_from_, until);
  posts_from_ = std::max(posts_from_, until + unread);
  world_.PutOff(*this);
}

void SimExecutor::Kill() {
  if (!alive_) return;
  alive_ = false;
  world_.DropEventsOf(this);
}

bool InlineOffloader::TryRun(Executor& reply_to, std::function<void()> work,
                             std::function<void()> done) {
  if (full_) return false;
  // The task owns its own handle: nobody cancels it, and it goes with the node that asked.
  auto handle = std::make_shared<TimerHandle>();
  *handle = reply_to.PostAfter(cost_, [handle, work = std::move(work), done = std::move(done)] {
    work();
    done();
  });
  return true;
}

}  // namespace baton
