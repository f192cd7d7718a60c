// A request on its way from a prefill worker to a decode worker, and what may go wrong there.
#include <string>
#include <vector>

#include "common/test_metrics.h"
#include "engine/engine_fixture.h"
#include "engine/fake_model_runner.h"
#include "gtest/gtest.h"
#include "prefill_worker/handover_fixture.h"
#include "proto/mapping/decoder_state.h"

namespace baton::worker {
namespace {

TEST_F(HandoverTest, EveryPromptLengthAroundABlockCrossesTokenExact) {
  for (const uint32_t step_tokens : {1u, 7u, 16u, 64u, 256u}) {
    RigWorker::Options options = PrefillOptions();
    options.step_tokens = step_tokens;
    Restart(options, DecodeOptions());
    for (uint32_t blocks = 0; blocks <= 6; ++blocks) {
      for (uint32_t prompt = blocks * 16 - (blocks > 0); prompt <= blocks * 16 + 1; ++prompt) {
        if (prompt == 0) continue;
        const DecoderState state = State(prompt, prompt);
        ASSERT_TRUE(Submit(state).ok());
        world_.RunFor(seconds(1));
        ExpectCrossed(state);
      }
    }
    ExpectIdle();
  }
}

TEST_F(HandoverTest, PenaltiesMinTokensAndLogprobsCrossWithTheRequest) {
  RigWorker::Options options = PrefillOptions();
  options.step_tokens = 40;
  Start(options);
  DecoderState state = State(1, 100, 12);
  state.sampling.presence_penalty = 1;
  state.sampling.frequency_penalty = 0.5f;
  state.sampling.repetition_penalty = 1.25f;
  state.sampling.logit_bias = {{3, 1}};
  state.stop.min_tokens = 12;
  state.logprobs = {2, 1};
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(1));
  const std::vector<TokenId> expected = Expected(state);
  EXPECT_EQ(to_decode_->TokensOf(state.attempt), expected);
  const auto score = [](const state::v1::TokenLogprobs& from) {
    return *proto::GetTokenLogprobs("", from, 1000);
  };
  // Source: Started, three chunks, FirstToken, HandedOff. Sink: the whole prompt, then the tokens.
  const std::vector<v1::WorkerEvent> source = to_prefill_->EventsOf(state.attempt);
  ASSERT_EQ(source.size(), 6u);
  EXPECT_EQ(score(source[4].first_token().token().logprobs()),
            engine::FakeLogprobs(expected[0], 2));
  uint32_t next = 1;
  for (int chunk = 1; chunk <= 3; ++chunk) {
    EXPECT_EQ(source[chunk].prompt_logprobs().position(), next);
    for (const auto& one : source[chunk].prompt_logprobs().logprobs()) {
      EXPECT_EQ(score(one), engine::FakeLogprobs(state.prompt[next++], 1));
    }
  }
  EXPECT_EQ(next, 100u);
  const std::vector<v1::WorkerEvent> sink = to_decode_->EventsOf(state.attempt);
  ASSERT_EQ(sink.size(), 1 + expected.size());
  EXPECT_EQ(sink[0].prompt_logprobs().position(), 1u);
  ASSERT_EQ(sink[0].prompt_logprobs().logprobs_size(), 99);
  for (int i = 0; i < 99; ++i) {
    EXPECT_EQ(score(sink[0].prompt_logprobs().logprobs(i)),
              engine::FakeLogprobs(state.prompt[i + 1], 1));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(score(sink[i + 1].token().logprobs()), engine::FakeLogprobs(expected[i], 2));
  }
  ExpectIdle();
}

TEST_F(HandoverTest, FirstTokenThatEndsTheRequestReleasesTheSink) {
  Start();
  const DecoderState state = State(1, 40, 1);
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(1));
  const std::vector<v1::WorkerEvent> source = to_prefill_->EventsOf(state.attempt);
  ASSERT_EQ(source.size(), 2u);
  EXPECT_EQ(source[1].first_token().token().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(to_decode_->EventsOf(state.attempt).empty());
  ExpectIdle();
}

TEST_F(HandoverTest, FirstLayerLandsBeforeTheLastChunkStarts) {
  RigWorker::Options options = PrefillOptions();
  options.step_tokens = 16;
  uint64_t landed_before_last_chunk = 0;
  options.model.on_step = [&](const engine::Step& step) {
    if (!step.items[0].samples.empty()) landed_before_last_chunk = decode_->table->landed_bytes();
  };
  Start(options);
  ASSERT_TRUE(Submit(State(1, 100)).ok());
  world_.RunFor(seconds(1));
  EXPECT_GT(landed_before_last_chunk, 0u);
  ExpectCrossed(State(1, 100));
}

TEST_F(HandoverTest, FirstTokenDoesNotWaitForTheCommit) {
  Start();
  hold_data_ = true;
  const DecoderState state = State(1);
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(1));
  const std::vector<v1::WorkerEvent> source = to_prefill_->EventsOf(state.attempt);
  ASSERT_EQ(source.size(), 2u);
  EXPECT_EQ(source[1].first_token().token().token(), Expected(state)[0]);
  EXPECT_TRUE(to_decode_->EventsOf(state.attempt).empty());
  hold_data_ = false;
  for (size_t i = 0; i < held_.size(); ++i) decode_->executor.Post(held_[i]);
  world_.RunFor(seconds(1));
  ExpectCrossed(state);
  ExpectIdle();
}

TEST_F(HandoverTest, AFewDecodesRestWhilePromptsAreComputedOnTheirCores) {
  for (const bool shared : {true, false}) {
    RigWorker::Options prefill = PrefillOptions();
    RigWorker::Options decode = DecodeOptions();
    decode.cores = {"machine", {0, 1}, 2};
    prefill.cores = {shared ? "machine" : "another", {0, 1}, 2};
    Restart(prefill, decode);
    DecoderState running = State(1, 16, 200);
    running.stop.ignore_eos = true;
    const DecoderState next = State(2, 400);
    ASSERT_TRUE(Submit(running).ok());
    world_.RunFor(milliseconds(5));
    ASSERT_GT(to_decode_->TokensOf(running.attempt).size(), 5u);
    EXPECT_EQ(MetricValue(decode_->metrics, "baton_step_rest_seconds_total"), 0);
    ASSERT_TRUE(Submit(next).ok());
    world_.RunFor(seconds(1));
    ExpectCrossed(running);
    ExpectCrossed(next);
    EXPECT_EQ(MetricValue(decode_->metrics, "baton_step_rest_seconds_total") > 0, shared);
    ExpectIdle();
  }
}

TEST_F(HandoverTest, EventsAreKeptUntilTheRouterAttaches) {
  Start();
  attach_ = false;
  const DecoderState state = State(1);
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(5));
  EXPECT_TRUE(to_decode_->EventsOf(state.attempt).empty());
  EXPECT_EQ(decode_->decode->state(state.attempt), DecodeState::kKept);
  EXPECT_TRUE(decode_->all_free());  // the sequence is over, only its events stay
  to_decode_->Attach(state.attempt);
  world_.RunFor(milliseconds(10));
  ExpectCrossed(state);
  ExpectIdle();
}

TEST_F(HandoverTest, EventsNobodyAttachesToAreKeptOneLease) {
  Start();
  attach_ = false;
  ASSERT_TRUE(Submit(State(1)).ok());
  world_.RunFor(seconds(11));
  const std::vector<v1::WorkerEvent> events = to_decode_->EventsOf(RigAttempt(1));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].lost().cause(), v1::CAUSE_LEASE_EXPIRED);
  ExpectIdle();
}

TEST_F(HandoverTest, ManyRequestsThroughSmallPoolsAllComeOutRight) {
  RigWorker::Options prefill = PrefillOptions();
  prefill.blocks = 20;
  prefill.reserve_patience = seconds(100);
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 24;
  Start(prefill, decode);
  std::vector<DecoderState> states;
  for (uint64_t request = 1; request <= 60; ++request) {
    states.push_back(State(request, static_cast<uint32_t>(1 + request * 37 % 200),
                           static_cast<uint32_t>(2 + request % 30)));
    ASSERT_TRUE(Submit(states.back()).ok());
  }
  world_.RunFor(seconds(30));
  for (const DecoderState& state : states) ExpectCrossed(state);
  ExpectIdle();
}

TEST_F(HandoverTest, RequestsThatWaitAtAFullSinkHoldAQuarterOfTheSource) {
  RigWorker::Options prefill = PrefillOptions();
  prefill.blocks = 40;
  prefill.reserve_patience = seconds(5);
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 12;
  Start(prefill, decode);
  // Fills the sink until its events have been kept for a lease.
  DecoderState hog = State(1, 100, 80);
  ASSERT_TRUE(to_decode_->Submit(hog).ok());
  world_.RunFor(milliseconds(1));
  for (uint64_t request = 2; request <= 12; ++request) {
    ASSERT_TRUE(Submit(State(request, 64, 60)).ok());  // four blocks each
  }
  world_.RunFor(microseconds(1500));
  EXPECT_GE(prefill_->free_blocks(), 40u - 10u);
  EXPECT_LT(prefill_->free_blocks(), 40u);
  world_.RunFor(seconds(20));
  for (uint64_t request = 2; request <= 12; ++request) ExpectCrossed(State(request, 64, 60));
  ExpectIdle();
}

TEST_F(HandoverTest, OneRequestOfAnySizeMayWait) {
  RigWorker::Options prefill = PrefillOptions();
  prefill.blocks = 12;
  Start(prefill);
  const DecoderState big = State(1, 180, 20);  // all twelve blocks
  ASSERT_TRUE(Submit(big).ok());
  world_.RunFor(seconds(2));
  ExpectCrossed(big);
  ExpectIdle();
}

TEST_F(HandoverTest, FullSinkUntilPatienceEndsIsNoRoom) {
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 12;
  decode.model.step_cost = milliseconds(200);
  RigWorker::Options prefill = PrefillOptions();
  prefill.reserve_patience = seconds(2);
  Start(prefill, decode);
  ASSERT_TRUE(to_decode_->Submit(State(1, 100, 80)).ok());
  world_.RunFor(milliseconds(300));
  ASSERT_TRUE(Submit(State(2, 100, 80)).ok());
  world_.RunFor(milliseconds(100));
  EXPECT_EQ(prefill_->prefill->state(RigAttempt(2)), PrefillState::kWaiting);
  EXPECT_EQ(decode_->decode->state(RigAttempt(2)), DecodeState::kQueued);
  world_.RunFor(seconds(3));
  const std::vector<v1::WorkerEvent> events = to_prefill_->EventsOf(RigAttempt(2));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].has_no_room());
  EXPECT_TRUE(prefill_->core->idle());
  EXPECT_FALSE(decode_->decode->Has(RigAttempt(2)));
  world_.RunFor(seconds(30));
  ExpectIdle();
}

TEST_F(HandoverTest, SinkThatDiesBeforeTheCommitFailsTheAttempt) {
  Start();
  hold_data_ = true;
  ASSERT_TRUE(Submit(State(1)).ok());
  ASSERT_TRUE(Submit(State(2, 200)).ok());
  world_.RunFor(milliseconds(1));
  ASSERT_EQ(to_prefill_->EventsOf(RigAttempt(1)).empty(), false);
  decode_.reset();
  world_.RunFor(seconds(12));
  EXPECT_TRUE(prefill_->all_free());
  EXPECT_TRUE(prefill_->core->idle());
}

TEST_F(HandoverTest, SourceThatDiesBeforeTheCommitIsLostAtTheSink) {
  Start();
  hold_data_ = true;
  ASSERT_TRUE(Submit(State(1)).ok());
  world_.RunFor(milliseconds(500));
  ASSERT_EQ(decode_->decode->state(RigAttempt(1)), DecodeState::kGranted);
  prefill_.reset();
  world_.RunFor(seconds(12));
  const std::vector<v1::WorkerEvent> events = to_decode_->EventsOf(RigAttempt(1));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].lost().cause(), v1::CAUSE_PEER_LOST);
  EXPECT_TRUE(decode_->all_free());
  EXPECT_TRUE(decode_->core->idle());
}

TEST_F(HandoverTest, RouterLostAtOneSideReleasesTheOther) {
  Start();
  hold_data_ = true;
  ASSERT_TRUE(Submit(State(1)).ok());
  world_.RunFor(milliseconds(500));
  to_decode_->Crash();
  world_.RunFor(seconds(1));
  hold_data_ = false;
  for (size_t i = 0; i < held_.size(); ++i) decode_->executor.Post(held_[i]);
  world_.RunFor(seconds(1));
  ExpectIdle();
}

// After FirstToken the router waits for the sink's word; the source that lost it gives the KV up.
TEST_F(HandoverTest, RouterThatLosesOnlyTheSourceHearsFromTheSink) {
  Start();
  hold_data_ = true;
  ASSERT_TRUE(Submit(State(1)).ok());
  world_.RunFor(milliseconds(500));
  ASSERT_TRUE(to_prefill_->EventsOf(RigAttempt(1)).back().has_first_token());
  to_prefill_->Crash();
  world_.RunFor(seconds(1));
  const std::vector<v1::WorkerEvent> events = to_decode_->EventsOf(RigAttempt(1));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].lost().cause(), v1::CAUSE_PEER_LOST);
  ExpectIdle();
}

// Cancel at any moment: the source and the sink are told, both have their blocks back in 2 s.
TEST_F(HandoverTest, CancelAtAnyMomentFreesBothSides) {
  for (int after_us = 0; after_us < 6000; after_us += 50) {
    Restart(PrefillOptions(), DecodeOptions());
    ASSERT_TRUE(Submit(State(1, 150, 20)).ok());
    world_.RunFor(microseconds(after_us));
    to_prefill_->Cancel(RigAttempt(1));
    to_decode_->Cancel(RigAttempt(1));
    world_.RunFor(seconds(2));
    ExpectIdle();
  }
}

TEST_F(HandoverTest, DeadlineAtAnyMomentFreesBothSides) {
  for (int after_us = 0; after_us < 6000; after_us += 100) {
    Restart(PrefillOptions(), DecodeOptions());
    DecoderState state = State(1, 150, 20);
    state.remaining = microseconds(after_us);
    ASSERT_TRUE(Submit(state).ok());
    world_.RunFor(seconds(2));
    ExpectIdle();
  }
}

}  // namespace
}  // namespace baton::worker
