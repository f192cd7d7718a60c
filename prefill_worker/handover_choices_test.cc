// Requests with several choices on their way from a prefill worker to a decode worker: the prompt
// is computed and shipped once, every choice is right, and each ends by itself.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kv/block_pool.h"
#include "prefill_worker/handover_fixture.h"

namespace baton::worker {
namespace {

uint64_t HandedOffBytes(const RigSession& session, const AttemptId& attempt) {
  const std::vector<v1::WorkerEvent> events = session.EventsOf(attempt);
  return events.empty() ? 0 : events.back().handed_off().bytes();
}

double PromptTokens(RigWorker& worker) {
  return worker.metrics.AddCounter("baton_prompt_tokens_total", "").Get().Value();
}

TEST_F(HandoverTest, EveryChoiceCrossesTokenExactAndThePromptOnce) {
  Start();
  uint64_t request = 0;
  double computed = 0;
  for (const uint32_t prompt : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 100u}) {
    uint64_t bytes_of_one = 0;
    for (const uint32_t n : {1u, 2u, 3u, 8u, 16u}) {
      SCOPED_TRACE(std::to_string(prompt) + " tokens, " + std::to_string(n) + " choices");
      const DecoderState state = State(++request, prompt, 10, n);
      ASSERT_TRUE(Submit(state).ok());
      world_.RunFor(seconds(1));
      ExpectCrossed(state);
      const uint64_t bytes = HandedOffBytes(*to_prefill_, state.attempt);
      if (n == 1) bytes_of_one = bytes;
      EXPECT_EQ(bytes, bytes_of_one);
      computed += prompt;
      EXPECT_EQ(PromptTokens(*prefill_), computed);
      EXPECT_EQ(PromptTokens(*decode_), 0);
    }
  }
  ExpectIdle();
}

TEST_F(HandoverTest, ChoicesAreTheSameUnified) {
  Start();
  for (const uint32_t prompt : {31u, 32u, 33u}) {
    const DecoderState state = State(prompt, prompt, 10, 5);
    ASSERT_TRUE(to_decode_->Submit(state).ok());
    world_.RunFor(seconds(1));
    for (uint32_t choice = 0; choice < 5; ++choice) {
      EXPECT_EQ(to_decode_->TokensOf(state.attempt, choice), Expected(state, choice));
    }
    EXPECT_TRUE(to_decode_->Finished(state.attempt, 5));
  }
  ExpectIdle();
}

// Some of the choices are over before the hand-over: the source says so, and the sink again.
TEST_F(HandoverTest, AChoiceThatItsFirstTokenEndsIsRepeatedAndNothingMore) {
  Start();
  DecoderState state = State(1, 40, 10, 4);
  state.stop.stop_token_ids = {Expected(state, 1)[0], Expected(state, 3)[0]};
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(1));
  ASSERT_EQ(Expected(state, 3).size(), 1u);
  ExpectCrossed(state);
  for (const v1::WorkerEvent& event : to_prefill_->EventsOf(state.attempt)) {
    if (!event.has_first_token()) continue;
    const v1::Token& token = event.first_token().token();
    EXPECT_EQ(token.finish_reason() == v1::FINISH_REASON_STOP,
              token.choice() == 1 || token.choice() == 3);
  }
  ExpectIdle();
}

TEST_F(HandoverTest, FirstTokensThatEndEveryChoiceReleaseTheSink) {
  Start();
  const DecoderState state = State(1, 40, 1, 8);
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(1));
  const std::vector<v1::WorkerEvent> source = to_prefill_->EventsOf(state.attempt);
  ASSERT_EQ(source.size(), 1u + 8);
  for (uint32_t choice = 0; choice < 8; ++choice) {
    const v1::Token& token = source[1 + choice].first_token().token();
    EXPECT_EQ(token.choice(), choice);
    EXPECT_EQ(token.finish_reason(), v1::FINISH_REASON_LENGTH);
  }
  EXPECT_TRUE(to_decode_->EventsOf(state.attempt).empty());
  ExpectIdle();
}

TEST_F(HandoverTest, LogprobsOfThePromptComeOnceAndThoseOfTokensWithEachChoice) {
  Start();
  DecoderState state = State(1, 40, 10, 3);
  state.logprobs = {2, 1};
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(1));
  size_t of_prompt = 0;
  for (const v1::WorkerEvent& event : to_decode_->EventsOf(state.attempt)) {
    of_prompt += static_cast<size_t>(event.prompt_logprobs().logprobs_size());
    if (!event.has_token()) continue;
    EXPECT_EQ(of_prompt, 39u) << "all of them before the first token";
    EXPECT_EQ(event.token().logprobs().top_token_ids_size(), 2);
  }
  EXPECT_EQ(of_prompt, 39u);
  ExpectIdle();
}

// The bound of the design, at the sink.
TEST_F(HandoverTest, EightChoicesHoldLittleMoreThanOneAtTheFirstToken) {
  const auto held_at_first_token = [this](uint32_t n) {
    RigWorker::Options decode = DecodeOptions();
    decode.blocks = 400;
    Restart(PrefillOptions(), decode);
    uint32_t held = 0;
    to_decode_->on_event = [&](const v1::WorkerEvent& event) {
      if (!event.has_token() || event.token().position() != 481) return;
      const kv::BlockCounts counts = decode_->core->pool().Counts();
      held = counts[static_cast<size_t>(kv::BlockState::kFilling)] +
             counts[static_cast<size_t>(kv::BlockState::kLive)];
    };
    EXPECT_TRUE(Submit(State(1, 480, 30, n)).ok());
    world_.RunFor(seconds(1));
    return held;
  };
  const uint32_t one = held_at_first_token(1);
  EXPECT_GT(one, 0u);
  EXPECT_LE(held_at_first_token(8), 1.25 * one);
}

TEST_F(HandoverTest, ChoicesThatNeverFitAreRefusedAtTheSinkAndInAUnifiedRun) {
  Start();
  const DecoderState state = State(1, 100, 100, 16);  // 64 blocks are not enough
  ASSERT_TRUE(Submit(state).ok());
  world_.RunFor(seconds(1));
  ASSERT_EQ(to_prefill_->EventsOf(state.attempt).size(), 1u);
  EXPECT_TRUE(to_prefill_->EventsOf(state.attempt)[0].has_no_room());
  const absl::Status status = to_decode_->Submit(State(2, 100, 100, 16));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("118 KV blocks"), std::string::npos) << status;
  ExpectIdle();
}

// Ends of every kind while some choices run and others are over.
TEST_F(HandoverTest, CancelAtAnyMomentFreesEveryChoice) {
  size_t with_an_ended_choice = 0;
  for (int after_us = 0; after_us < 8000; after_us += 100) {
    Restart(PrefillOptions(), DecodeOptions());
    DecoderState state = State(1, 40, 30, 6);
    state.stop.stop_token_ids = {Expected(state, 2)[0], Expected(state, 4)[3]};
    ASSERT_TRUE(Submit(state).ok());
    world_.RunFor(microseconds(after_us));
    const auto ended = [&](uint32_t choice) {
      return to_decode_->TokensOf(state.attempt, choice).size() == Expected(state, choice).size();
    };
    with_an_ended_choice += ended(4) && !ended(0) ? 1 : 0;
    to_prefill_->Cancel(state.attempt);
    to_decode_->Cancel(state.attempt);
    world_.RunFor(seconds(2));
    ExpectIdle();
  }
  EXPECT_GT(with_an_ended_choice, 5u);
}

// Those whose reservation went to an older one come again, as from a router.
TEST_F(HandoverTest, RequestsWithManyChoicesShareSmallPools) {
  RigWorker::Options prefill = PrefillOptions();
  prefill.blocks = 20;
  prefill.reserve_patience = seconds(100);
  RigWorker::Options decode = DecodeOptions();
  decode.blocks = 60;
  decode.step_tokens = 16;
  Start(prefill, decode);
  std::vector<DecoderState> states;
  for (uint64_t request = 1; request <= 40; ++request) {
    states.push_back(State(request, static_cast<uint32_t>(1 + request * 37 % 120),
                           static_cast<uint32_t>(2 + request % 30),
                           static_cast<uint32_t>(1 + request * 5 % 16)));
    ASSERT_TRUE(Submit(states.back()).ok());
  }
  for (int round = 0; round < 40 && !states.empty(); ++round) {
    world_.RunFor(seconds(60));
    for (DecoderState& state : std::exchange(states, {})) {
      if (!Revoked(state.attempt)) {
        ExpectCrossed(state);
        continue;
      }
      ++state.attempt.attempt;
      ASSERT_TRUE(Submit(state).ok());
      states.push_back(state);
    }
  }
  EXPECT_TRUE(states.empty());
  ExpectIdle();
}

}  // namespace
}  // namespace baton::worker
