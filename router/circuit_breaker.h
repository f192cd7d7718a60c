// Keeps requests away from a worker that fails them while its session holds, and lets one try it
// now and then.
//
//                  kClosed     kOpen       kDue        kProbing
//  Taken           stay        stay        Probing     stay
//  Worked          stay        Closed      Closed      Closed
//  Failed          Open        stay        Open        Open
//  GivenBack       stay        stay        stay        Due (a)
//  PauseOver       -           Due         -           -
//  Reconsider      stay        Due         stay        stay
//  Reset           stay        Closed      Closed      Closed
//
// Requests are sent to a worker that is kClosed or kDue; the one that finds it kDue is the probe.
// To kOpen and kProbing they go only when nobody else is left. (a) The probe only. A ticket that
// was taken before the last opening or closing says nothing: what it knows is older.
#ifndef BATON_ROUTER_CIRCUIT_BREAKER_H_
#define BATON_ROUTER_CIRCUIT_BREAKER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "common/executor.h"
#include "common/time.h"

namespace baton::router {

// Owner thread: the executor's.
class CircuitBreaker {
 public:
  enum class State : uint8_t { kClosed, kOpen, kDue, kProbing };

  // How long it is open; doubles from the first to the second while every probe fails.
  struct Options {
    Duration pause_min = std::chrono::milliseconds(100);
    Duration pause_max = std::chrono::seconds(8);
  };

  // Of one request that is sent to the worker: says once how that went, or is given back.
  // Move-only.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { GiveBack(); }
    void Worked();
    void Failed();
    void GiveBack();

   private:
    friend class CircuitBreaker;
    CircuitBreaker* breaker_ = nullptr;  // until it has said something
    uint64_t era_ = 0;
    bool probe_ = false;
  };

  // `on_change` is called after each move to another state. Outlives its tickets.
  CircuitBreaker(const Options& options, Executor& executor, std::function<void()> on_change);
  CircuitBreaker(const CircuitBreaker&) = delete;
  CircuitBreaker& operator=(const CircuitBreaker&) = delete;

  [[nodiscard]] Ticket Take();
  // What made requests fail may be over: probes at once.
  void Reconsider();
  // Another session: nothing is known of it.
  void Reset();

  State state() const { return state_; }
  // Whether requests that can go elsewhere do.
  bool shuns() const { return state_ == State::kOpen || state_ == State::kProbing; }

 private:
  void Open();
  void Close();
  void Move(State state);

  const Options options_;
  Executor& executor_;
  const std::function<void()> on_change_;
  State state_ = State::kClosed;
  uint64_t era_ = 0;  // of openings and closings
  Duration pause_;
  TimerHandle pause_timer_;
};

}  // namespace baton::router

#endif  // BATON_ROUTER_CIRCUIT_BREAKER_H_
