// A short prompt at a prefill worker that computes long ones (docs/decisions/0027).
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/time.h"
#include "gtest/gtest.h"
#include "prefill_worker/handover_fixture.h"

namespace baton::worker {
namespace {

constexpr uint32_t kLong = 480;  // 30 blocks

class ShortPromptsTest : public HandoverTest {
 protected:
  void Begin(uint32_t blocks, const RigWorker::Options& decode = DecodeOptions()) {
    RigWorker::Options prefill = PrefillOptions();
    prefill.step_tokens = 16;
    prefill.blocks = blocks;
    prefill.reserve_patience = seconds(100);
    Restart(prefill, decode);
    to_prefill_->on_event = [this](const v1::WorkerEvent& event) {
      if (event.has_started()) to_decode_->Attach(AttemptOf(event));
      if (event.has_first_token()) OnFirst(AttemptOf(event).request);
    };
  }
  void Ask(const DecoderState& state) {
    asked_[state.attempt.request] = world_.now();
    ASSERT_TRUE(Submit(state).ok());
  }
  Duration Took(uint64_t request) { return first_.at(request) - asked_.at(request); }
  void OnFirst(uint64_t request) {
    first_[request] = world_.now();
    order_.push_back(request);
    if (on_first_ != nullptr) on_first_(request);
  }

  std::map<uint64_t, Time> asked_;
  std::map<uint64_t, Time> first_;
  std::vector<uint64_t> order_;
  std::function<void(uint64_t)> on_first_;
};

TEST_F(ShortPromptsTest, AShortPromptDoesNotWaitForTheLongOnesBeforeIt) {
  Begin(64);
  const std::vector<DecoderState> states = {State(1, kLong), State(2, 300), State(3, 20)};
  Ask(states[0]);
  world_.RunFor(milliseconds(1));
  Ask(states[1]);
  world_.RunFor(milliseconds(1));
  Ask(states[2]);
  world_.RunFor(seconds(1));
  EXPECT_EQ(order_, std::vector<uint64_t>({3, 1, 2}));
  EXPECT_LT(4 * Took(3), Took(1));
  for (const DecoderState& state : states) ExpectCrossed(state);
  ExpectIdle();
}

TEST_F(ShortPromptsTest, ItTakesNoRoomThatAnOlderOneNeeds) {
  Begin(40);
  const std::vector<DecoderState> states = {State(1, kLong), State(2, 300), State(3, 20)};
  for (const DecoderState& state : states) Ask(state);
  world_.RunFor(milliseconds(5));
  EXPECT_EQ(prefill_->prefill->state(RigAttempt(1)), PrefillState::kRunning);
  EXPECT_EQ(prefill_->prefill->state(RigAttempt(2)), PrefillState::kQueued);
  EXPECT_EQ(prefill_->prefill->state(RigAttempt(3)), PrefillState::kQueued);
  world_.RunFor(seconds(1));
  EXPECT_EQ(order_, std::vector<uint64_t>({1, 3, 2}));
  for (const DecoderState& state : states) ExpectCrossed(state);
  ExpectIdle();
}

// Each when the one before it has its first token.
TEST_F(ShortPromptsTest, HoweverManyOvertakeALongOneItComesToItsEnd) {
  const auto took = [this](uint64_t others) {
    Begin(64);
    order_.clear();
    on_first_ = [this, others](uint64_t request) {
      if (request != 1 && request <= others) Ask(State(request + 1, 20, 2));
    };
    Ask(State(1, kLong));
    world_.RunFor(milliseconds(1));
    Ask(State(2, 20, 2));
    world_.RunFor(seconds(2));
    ExpectCrossed(State(1, kLong));
    for (uint64_t request = 2; request <= others + 1; ++request) {
      ExpectCrossed(State(request, 20, 2));
    }
    ExpectIdle();
    return Took(1);
  };
  const Duration alone = took(1);
  const Duration crowded = took(100);
  EXPECT_GT(crowded, 5 * alone / 4);
  EXPECT_LT(crowded, 5 * alone / 2);
  EXPECT_GT(order_.size(), 90u);
  EXPECT_LT(std::find(order_.begin(), order_.end(), 1) - order_.begin(), 30);
}

// Sinks too small for what comes take reservations back; as a router does, the test places those
// requests again, as old as they are.
TEST_F(ShortPromptsTest, ThroughSmallPoolsAllComeToTheirEnd) {
  for (const uint32_t blocks : {20u, 24u, 40u, 64u}) {
    SCOPED_TRACE(blocks);
    RigWorker::Options decode = DecodeOptions();
    decode.blocks = blocks;
    Begin(blocks, decode);
    const Time begin = world_.now();
    std::map<uint64_t, DecoderState> states;
    to_decode_->on_event = [&](const v1::WorkerEvent& event) {
      if (!event.has_lost()) return;
      ASSERT_EQ(event.lost().cause(), v1::CAUSE_PREEMPTED);
      DecoderState& again = states.at(AttemptOf(event).request);
      ++again.attempt.attempt;
      again.age = world_.now() - begin - microseconds(again.attempt.request);
      ASSERT_TRUE(Submit(again).ok());
    };
    for (uint32_t request = 1; request <= 60; ++request) {
      states[request] = State(request, 1 + request * 37 % 200, 2 + request % 100);
      ASSERT_TRUE(Submit(states[request]).ok());
      world_.RunFor(microseconds(1));
    }
    world_.RunFor(seconds(60));
    uint32_t again = 0;
    for (const auto& [request, state] : states) {
      ExpectCrossed(state);
      again += state.attempt.attempt - 1;
    }
    EXPECT_EQ(states.at(1).attempt.attempt, 1u);
    EXPECT_LE(again, 6u);
    ExpectIdle();
  }
}

}  // namespace
}  // namespace baton::worker
