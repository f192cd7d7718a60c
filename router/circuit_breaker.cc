#include "router/circuit_breaker.h"

#include <algorithm>

namespace baton::router {

CircuitBreaker::Ticket& CircuitBreaker::Ticket::operator=(Ticket&& other) noexcept {
  GiveBack();
  breaker_ = std::exchange(other.breaker_, nullptr);
  era_ = other.era_;
  probe_ = other.probe_;
  return *this;
}

void CircuitBreaker::Ticket::Worked() {
  CircuitBreaker* const breaker = std::exchange(breaker_, nullptr);
  if (breaker != nullptr && breaker->era_ == era_) breaker->Close();
}

void CircuitBreaker::Ticket::Failed() {
  CircuitBreaker* const breaker = std::exchange(breaker_, nullptr);
  if (breaker == nullptr || breaker->era_ != era_ || breaker->state_ == State::kOpen) return;
  breaker->Open();
}

void CircuitBreaker::Ticket::GiveBack() {
  CircuitBreaker* const breaker = std::exchange(breaker_, nullptr);
  if (breaker != nullptr && breaker->era_ == era_ && probe_) breaker->Move(State::kDue);
}

CircuitBreaker::CircuitBreaker(const Options& options, Executor& executor,
                               std::function<void()> on_change)
    : options_(options),
      executor_(executor),
      on_change_(std::move(on_change)),
      pause_(options.pause_min) {}

CircuitBreaker::Ticket CircuitBreaker::Take() {
  Ticket ticket;
  ticket.breaker_ = this;
  ticket.era_ = era_;
  ticket.probe_ = state_ == State::kDue;
  if (ticket.probe_) Move(State::kProbing);
  return ticket;
}

void CircuitBreaker::Reconsider() {
  if (state_ != State::kOpen) return;
  pause_timer_.Cancel();
  Move(State::kDue);
}

void CircuitBreaker::Reset() {
  ++era_;
  Close();
}

void CircuitBreaker::Open() {
  ++era_;
  pause_timer_ = executor_.PostAfter(pause_, [this] { Move(State::kDue); });
  pause_ = std::min(2 * pause_, options_.pause_max);
  Move(State::kOpen);
}

void CircuitBreaker::Close() {
  pause_timer_.Cancel();
  pause_ = options_.pause_min;
  if (state_ == State::kClosed) return;
  ++era_;
  Move(State::kClosed);
}

void CircuitBreaker::Move(State state) {
  state_ = state;
  on_change_();
}

}  // namespace baton::router
