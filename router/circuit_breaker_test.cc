#include "router/circuit_breaker.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/sim_executor.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = CircuitBreaker::State;

constexpr State kStates[] = {State::kClosed, State::kOpen, State::kDue, State::kProbing};

class CircuitBreakerTest : public testing::Test {
 protected:
  // A new breaker in this state. In kProbing probe_ is the probe's.
  void Bring(State state) {
    probe_ = {};
    breaker_ = std::make_unique<CircuitBreaker>(CircuitBreaker::Options(), node_,
                                                [this] { moves_.push_back(breaker_->state()); });
    if (state == State::kClosed) return;
    breaker_->Take().Failed();
    if (state == State::kOpen) return;
    breaker_->Reconsider();
    if (state == State::kProbing) probe_ = breaker_->Take();
  }

  // A ticket that counts and is not the probe's.
  CircuitBreaker::Ticket Current(State state) {
    Bring(state == State::kDue || state == State::kProbing ? State::kOpen : state);
    CircuitBreaker::Ticket ticket = breaker_->Take();
    if (state == State::kDue || state == State::kProbing) breaker_->Reconsider();
    if (state == State::kProbing) probe_ = breaker_->Take();
    EXPECT_EQ(breaker_->state(), state);
    return ticket;
  }

  State After(const std::string& event, State state) {
    CircuitBreaker::Ticket ticket = Current(state);
    if (event == "Worked") ticket.Worked();
    if (event == "Failed") ticket.Failed();
    if (event == "GivenBack") ticket.GiveBack();
    if (event == "Reconsider") breaker_->Reconsider();
    if (event == "Reset") breaker_->Reset();
    if (event == "Taken") ticket = breaker_->Take();
    return breaker_->state();
  }

  SimWorld world_;
  SimExecutor node_{world_, "router"};
  std::vector<State> moves_;
  std::unique_ptr<CircuitBreaker> breaker_;
  CircuitBreaker::Ticket probe_;
};

TEST_F(CircuitBreakerTest, EveryEventInEveryStateIsAsDrawn) {
  constexpr State kClosed = State::kClosed, kOpen = State::kOpen, kDue = State::kDue,
                  kProbing = State::kProbing;
  const std::map<std::string, std::vector<State>> expected = {
      {"Worked", {kClosed, kClosed, kClosed, kClosed}},
      {"Failed", {kOpen, kOpen, kOpen, kOpen}},
      {"GivenBack", {kClosed, kOpen, kDue, kProbing}},
      {"Reconsider", {kClosed, kDue, kDue, kProbing}},
      {"Reset", {kClosed, kClosed, kClosed, kClosed}},
  };
  for (const auto& [event, after] : expected) {
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(After(event, kStates[i]), after[i]) << event << i;
  }
}

TEST_F(CircuitBreakerTest, TheRequestThatFindsItDueIsTheOnlyProbe) {
  for (const State state : kStates) {
    Bring(state);
    EXPECT_EQ(breaker_->shuns(), state == State::kOpen || state == State::kProbing);
    const CircuitBreaker::Ticket ticket = breaker_->Take();
    EXPECT_EQ(breaker_->state(), state == State::kDue ? State::kProbing : state);
  }
  Bring(State::kProbing);
  probe_.Worked();
  EXPECT_EQ(breaker_->state(), State::kClosed);
  Bring(State::kProbing);
  probe_.Failed();
  EXPECT_EQ(breaker_->state(), State::kOpen);
}

// Its client left, or it never came so far.
TEST_F(CircuitBreakerTest, AProbeThatIsGivenBackLeavesTheNextRequestToProbe) {
  Bring(State::kProbing);
  probe_.GiveBack();
  EXPECT_EQ(breaker_->state(), State::kDue);
  { const CircuitBreaker::Ticket dropped = breaker_->Take(); }
  EXPECT_EQ(breaker_->state(), State::kDue);
}

TEST_F(CircuitBreakerTest, ThePauseDoublesWhileProbesFailAndIsShortAgainAfterOneThatWorked) {
  Bring(State::kClosed);
  for (const int pause_ms : {100, 200, 400, 800, 1600, 3200, 6400, 8000, 8000}) {
    const Duration pause = milliseconds(pause_ms);
    breaker_->Take().Failed();
    world_.RunFor(pause - Duration(1));
    EXPECT_EQ(breaker_->state(), State::kOpen);
    world_.RunFor(Duration(1));
    EXPECT_EQ(breaker_->state(), State::kDue);
  }
  breaker_->Take().Worked();
  breaker_->Take().Failed();
  world_.RunFor(milliseconds(100));
  EXPECT_EQ(breaker_->state(), State::kDue);
}

// Many are on their way when the first of them fails.
TEST_F(CircuitBreakerTest, WhatWasSentBeforeItOpenedNeitherOpensItAgainNorClosesIt) {
  Bring(State::kClosed);
  CircuitBreaker::Ticket first = breaker_->Take(), second = breaker_->Take(),
                         third = breaker_->Take(), fourth = breaker_->Take();
  first.Failed();
  second.Failed();
  third.Worked();
  EXPECT_EQ(breaker_->state(), State::kOpen);
  world_.RunFor(milliseconds(100));
  EXPECT_EQ(breaker_->state(), State::kDue);
  breaker_->Take().Worked();
  fourth.Failed();
  EXPECT_EQ(breaker_->state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, NothingOfAnOlderSessionCounts) {
  Bring(State::kClosed);
  CircuitBreaker::Ticket old = breaker_->Take();
  breaker_->Reset();
  old.Failed();
  EXPECT_EQ(breaker_->state(), State::kClosed);
  Bring(State::kProbing);
  breaker_->Reset();
  probe_.GiveBack();
  EXPECT_EQ(breaker_->state(), State::kClosed);
  world_.RunFor(seconds(10));
  EXPECT_EQ(breaker_->state(), State::kClosed);
}

TEST_F(CircuitBreakerTest, EveryMoveIsTold) {
  Bring(State::kClosed);
  breaker_->Take().Failed();
  world_.RunFor(seconds(1));
  breaker_->Take().Worked();
  breaker_->Reset();
  EXPECT_EQ(moves_,
            (std::vector<State>{State::kOpen, State::kDue, State::kProbing, State::kClosed}));
}

}  // namespace
}  // namespace baton::router
