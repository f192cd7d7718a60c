// A request that finds a part of its prompt at the source, at the sink, or at both, crosses with
// the same tokens and less to ship.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_fixture.h"
#include "gtest/gtest.h"
#include "kv/layout.h"
#include "prefill_worker/handover_fixture.h"

namespace baton::worker {
namespace {

constexpr uint32_t kSize = 16;

class HandoverCacheTest : public HandoverTest {
 protected:
  DecoderState Cached(uint32_t prompt, uint32_t max_tokens = 10, uint64_t seed = 7,
                      uint32_t n = 1) {
    DecoderState state =
        engine::FixtureState(engine::FixturePrompt(prompt, seed), max_tokens, seed, n);
    state.stop.ignore_eos = true;
    state.cache_namespace = "space";
    return state;
  }

  // What a request found: tokens that the source did not compute, and that it did not ship.
  struct Found {
    uint32_t source = 0;
    uint32_t sink = 0;
    uint64_t bytes = 0;
  };

  Found Cross(DecoderState state) {
    state.attempt = RigAttempt(++last_request_);
    EXPECT_TRUE(Submit(state).ok());
    world_.RunFor(seconds(2));
    const auto n = static_cast<uint32_t>(state.choices.size());
    Found found;
    uint32_t committed = 0;
    for (const v1::WorkerEvent& event : to_prefill_->EventsOf(state.attempt)) {
      if (event.has_cached_prompt()) found.source = event.cached_prompt().tokens();
      if (!event.has_handed_off()) continue;
      ++committed;
      found.sink = static_cast<uint32_t>(state.prompt.size()) - event.handed_off().tokens();
      found.bytes = event.handed_off().bytes();
    }
    EXPECT_EQ(committed, 1u);
    for (uint32_t choice = 0; choice < n; ++choice) {
      EXPECT_EQ(to_decode_->TokensOf(state.attempt, choice), Expected(state, choice));
    }
    EXPECT_TRUE(to_decode_->Finished(state.attempt, n));
    ExpectIdle();
    return found;
  }

  // At the decode worker alone, so that the source knows nothing of it.
  void RunAtSink(DecoderState state) {
    state.attempt = RigAttempt(++last_request_);
    EXPECT_TRUE(to_decode_->Submit(state).ok());
    world_.RunFor(seconds(2));
    EXPECT_EQ(to_decode_->TokensOf(state.attempt), Expected(state));
    ExpectIdle();
  }
  // At the source alone: its first token is its last.
  void RunAtSource(DecoderState state) {
    state.attempt = RigAttempt(++last_request_);
    state.stop.max_tokens = 1;
    EXPECT_TRUE(Submit(state).ok());
    world_.RunFor(seconds(2));
    EXPECT_TRUE(to_decode_->EventsOf(state.attempt).empty());
    ExpectIdle();
  }

  static uint64_t BytesOf(uint32_t blocks) {
    const kv::KvLayout layout = engine::FakeLayout(kSize);
    return blocks * (layout.BlockBytes(0) + layout.BlockBytes(1));
  }
  static uint32_t Whole(uint32_t tokens) { return tokens / kSize * kSize; }
  static uint32_t Blocks(uint32_t tokens) { return (tokens + kSize - 1) / kSize; }

  uint64_t last_request_ = 0;
};

TEST_F(HandoverCacheTest, HitsAroundEveryBlockBorderAtTheSourceTheSinkAndBoth) {
  for (const uint32_t step_tokens : {7u, 64u}) {
    for (const bool at_source : {false, true}) {
      for (const bool at_sink : {false, true}) {
        for (uint32_t prompt = 1; prompt <= 50; prompt += prompt % kSize == 1 ? 13 : 1) {
          SCOPED_TRACE(std::to_string(prompt) + (at_source ? " source" : "") +
                       (at_sink ? " sink" : ""));
          RigWorker::Options options = PrefillOptions();
          options.step_tokens = step_tokens;
          Restart(options, DecodeOptions());
          const DecoderState state = Cached(prompt);
          if (at_source) RunAtSource(state);
          if (at_sink) RunAtSink(state);
          const Found found = Cross(state);
          EXPECT_EQ(found.source, at_source ? Whole(prompt - 1) : 0);
          EXPECT_EQ(found.sink, at_sink ? Whole(prompt) : 0);
          EXPECT_EQ(found.bytes, BytesOf(Blocks(prompt) - found.sink / kSize));
        }
      }
    }
  }
}

TEST_F(HandoverCacheTest, AFullMatchShipsNothingAndStillCommits) {
  Start();
  RunAtSink(Cached(96));
  const Found found = Cross(Cached(96, 10, 7, 3));
  EXPECT_EQ(found.sink, 96u);
  EXPECT_EQ(found.bytes, 0u);
}

TEST_F(HandoverCacheTest, WhatCrossedIsFoundAgainAtBothEnds) {
  Start();
  EXPECT_EQ(Cross(Cached(100)).bytes, BytesOf(7));
  const Found found = Cross(Cached(100));
  EXPECT_EQ(found.source, 96u);
  EXPECT_EQ(found.sink, 96u);
  EXPECT_EQ(found.bytes, BytesOf(1));
}

TEST_F(HandoverCacheTest, ASecondTurnFindsTheFirstOnesAnswerAtTheSink) {
  Start();
  DecoderState turn = Cached(40, 60);
  Cross(turn);
  const std::vector<TokenId> answer = Expected(turn);
  turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
  const std::vector<TokenId> question = engine::FixturePrompt(20, 9);
  turn.prompt.insert(turn.prompt.end(), question.begin(), question.end());
  const Found found = Cross(turn);
  EXPECT_EQ(found.source, 32u);  // it never saw the answer
  EXPECT_EQ(found.sink, 96u);    // all but the last token of the first turn's 100, in whole blocks
}

TEST_F(HandoverCacheTest, APromptThatWaitsIsAsMuchWorkAsIsNotCached) {
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 12;
  Start(PrefillOptions(), decode);
  EXPECT_EQ(Cross(Cached(100)).source, 0u);
  DecoderState occupant = Cached(170, 22, 3);  // all 12 blocks
  occupant.attempt = RigAttempt(++last_request_);
  ASSERT_TRUE(to_decode_->Submit(occupant).ok());
  world_.RunFor(milliseconds(1));
  DecoderState again = Cached(100);
  again.attempt = RigAttempt(++last_request_);
  ASSERT_TRUE(Submit(again).ok());
  EXPECT_EQ(prefill_->core->Load().queued_prefill_tokens(), 4u);  // in the queue for blocks
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(prefill_->core->Load().waiting(), 1u);
  EXPECT_EQ(prefill_->core->Load().queued_prefill_tokens(), 4u);  // at the sink
  world_.RunFor(seconds(2));
  EXPECT_EQ(to_decode_->TokensOf(again.attempt), Expected(again));
  ExpectIdle();
}

TEST_F(HandoverCacheTest, WhatWasGivenUpMeanwhileIsShippedAfterAll) {
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 12;
  Start(PrefillOptions(), decode);
  Cross(Cached(100));
  Cross(Cached(100, 10, 8));
  EXPECT_LT(Cross(Cached(100)).sink, 96u);
}

TEST_F(HandoverCacheTest, NamespacesAndRequestsWithoutOneShareNothing) {
  Start();
  DecoderState other = Cached(100);
  other.cache_namespace = "other";
  DecoderState bypassing = Cached(100);
  bypassing.cache_namespace.clear();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Cross(bypassing).bytes, BytesOf(7));
  EXPECT_EQ(Cross(Cached(100)).bytes, BytesOf(7));
  EXPECT_EQ(Cross(other).bytes, BytesOf(7));
  EXPECT_EQ(Cross(bypassing).bytes, BytesOf(7));
  EXPECT_EQ(Cross(Cached(100)).bytes, BytesOf(1));
}

TEST_F(HandoverCacheTest, PromptLogprobsAreComputedAtTheSourceAndTheRestIsFoundAtTheSink) {
  Start();
  Cross(Cached(100));
  DecoderState scored = Cached(100);
  scored.logprobs.prompt = 1;
  const Found found = Cross(scored);
  EXPECT_EQ(found.source, 0u);
  EXPECT_EQ(found.sink, 96u);
}

TEST_F(HandoverCacheTest, BlocksThatWereNeverWholeAreNotFound) {
  Start();
  hold_data_ = true;
  DecoderState cancelled = Cached(100);
  cancelled.attempt = RigAttempt(++last_request_);
  ASSERT_TRUE(Submit(cancelled).ok());
  world_.RunFor(milliseconds(100));
  to_prefill_->Cancel(cancelled.attempt);
  to_decode_->Cancel(cancelled.attempt);
  hold_data_ = false;
  for (auto& deliver : std::exchange(held_, {})) decode_->executor.Post(std::move(deliver));
  world_.RunFor(seconds(1));
  ExpectIdle();
  EXPECT_EQ(decode_->core->cache()->size(), 0u);
  const Found found = Cross(Cached(100));
  EXPECT_EQ(found.source, 96u);  // computed before the cancel
  EXPECT_EQ(found.sink, 0u);
}

TEST_F(HandoverCacheTest, AWorkerWithoutACacheWorksWithOneThatHasIt) {
  RigWorker::Options off = DecodeOptions();
  off.prefix_cache = false;
  Start(PrefillOptions(), off);
  Cross(Cached(100));
  const Found found = Cross(Cached(100));
  EXPECT_EQ(found.source, 96u);
  EXPECT_EQ(found.sink, 0u);
  EXPECT_EQ(decode_->core->cache(), nullptr);
}

}  // namespace
}  // namespace baton::worker
