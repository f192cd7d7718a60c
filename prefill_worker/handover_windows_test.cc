// A model one of whose KV groups has a sliding window: of that group only the blocks that the
// answer sees cross from a prefill worker to a decode worker, and only for these there is room.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kv/block_demand.h"
#include "kv/sliding_windows.h"
#include "prefill_worker/handover_fixture.h"

namespace baton::worker {
namespace {

constexpr kv::GroupId kSlides = 1;
constexpr uint64_t kPieceBytes = 16 * 16;  // of the fake model's arenas, two in a layer

class HandoverWindowsTest : public HandoverTest {
 protected:
  void StartWith(uint32_t window, uint32_t step_tokens = 24) {
    window_ = window;
    RigWorker::Options prefill = PrefillOptions();
    RigWorker::Options decode = DecodeOptions();
    prefill.window = decode.window = window;
    prefill.step_tokens = decode.step_tokens = step_tokens;
    Restart(prefill, decode);
  }
  // Blocks of the group that slides.
  uint32_t Seen(uint32_t prompt) const {
    const kv::SlidingWindows windows(engine::FakeLayout(16, window_), 1);
    return static_cast<uint32_t>(kv::BlocksFor(prompt, 16)) - windows.FirstSeen(kSlides, prompt);
  }
  static uint32_t Held(const RigWorker& worker) {
    const kv::BlockPool& pool = worker.core->pool();
    return pool.capacity()[kSlides] - pool.free_blocks()[kSlides];
  }
};

TEST_F(HandoverWindowsTest, WhatTheAnswerSeesCrossesAndNothingElse) {
  for (const uint32_t window : {1u, 15u, 16u, 17u, 48u}) {
    StartWith(window);
    uint64_t request = 0;
    for (const uint32_t prompt : {1u, 15u, 16u, 17u, 47u, 48u, 49u, 63u, 64u, 65u, 200u}) {
      for (const uint32_t n : {1u, 3u}) {
        SCOPED_TRACE(std::to_string(prompt) + " tokens, " + std::to_string(n) +
                     " choices, window " + std::to_string(window));
        const DecoderState state = State(++request, prompt, 60, n);
        ASSERT_TRUE(Submit(state).ok());
        world_.RunFor(seconds(1));
        ExpectCrossed(state);
        const uint64_t blocks = 2 * kv::BlocksFor(prompt, 16) + Seen(prompt);
        const uint64_t bytes = to_prefill_->EventsOf(state.attempt).back().handed_off().bytes();
        EXPECT_EQ(bytes, blocks * 2 * kPieceBytes);
      }
    }
    ExpectIdle();
  }
}

TEST_F(HandoverWindowsTest, ASinkHasRoomForWhatIsSeenAndASourceForAStepMore) {
  StartWith(48);
  hold_data_ = true;
  const DecoderState state = State(1, 400, 60);
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(1));
  // 3 and a block to grow; the window and a step.
  EXPECT_EQ(Held(*decode_), Seen(400) + 1);
  EXPECT_LE(Held(*prefill_), (48u + 24) / 16 + 2);
  EXPECT_EQ(decode_->free_blocks(), 64u - 26);
  hold_data_ = false;
  for (const auto& deliver : std::exchange(held_, {})) deliver();
  world_.RunFor(seconds(1));
  ExpectCrossed(state);
  ExpectIdle();
}

TEST_F(HandoverWindowsTest, ACancelOnTheWayGivesEverythingBack) {
  StartWith(17);
  for (int ms = 1; ms < 24; ++ms) {
    const DecoderState state = State(static_cast<uint64_t>(ms), 300, 60);
    ASSERT_TRUE(Submit(state).ok());
    world_.RunFor(milliseconds(ms));
    to_prefill_->Cancel(state.attempt);
    to_decode_->Cancel(state.attempt);
    world_.RunFor(seconds(1));
    ExpectIdle();
  }
}

TEST_F(HandoverWindowsTest, RequestsThatRunAloneAreRightToo) {
  StartWith(16);
  for (const uint32_t prompt : {1u, 16u, 33u, 300u}) {
    const DecoderState state = State(prompt, prompt, 100, 3);
    ASSERT_TRUE(to_decode_->Submit(state).ok());
    world_.RunFor(seconds(1));
    for (uint32_t choice = 0; choice < 3; ++choice) {
      EXPECT_EQ(to_decode_->TokensOf(state.attempt, choice), Expected(state, choice));
    }
  }
  ExpectIdle();
}

// As a router does it when a worker was lost.
TEST_F(HandoverWindowsTest, ARequestWithItsTokensGoesOnElsewhere) {
  StartWith(17, 7);
  DecoderState state = State(1, 50, 150, 2);
  const std::vector<TokenId> first = Expected(state, 0);
  const std::vector<TokenId> second = Expected(state, 1);
  state.choices[0].tokens.assign(first.begin(), first.begin() + 100);
  state.choices[1].tokens.assign(second.begin(), second.begin() + 30);
  ASSERT_TRUE(to_decode_->Submit(state).ok());
  world_.RunFor(seconds(1));
  EXPECT_EQ(to_decode_->TokensOf(state.attempt, 0), first);
  EXPECT_EQ(to_decode_->TokensOf(state.attempt, 1), second);
  ExpectIdle();
}

TEST_F(HandoverWindowsTest, ThereIsNoPrefixCache) {
  StartWith(17);
  EXPECT_EQ(prefill_->core->cache(), nullptr);
  EXPECT_EQ(decode_->core->cache(), nullptr);
  for (uint64_t request = 1; request <= 2; ++request) {
    DecoderState state = State(request, 100);
    state.prompt = engine::FixturePrompt(100, 7);
    state.cache_namespace = "space";
    ASSERT_TRUE(Submit(state).ok());
    world_.RunFor(seconds(1));
    ExpectCrossed(state);
  }
  ExpectIdle();
}

}  // namespace
}  // namespace baton::worker
