// Several choices of one request through the core.
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/random.h"
#include "router/router_core_fixture.h"

namespace baton::router {
namespace {

constexpr uint32_t kPrompt = 20;

TokenId TokenAt(uint32_t choice, uint32_t index) {
  return static_cast<TokenId>(100 * (choice + 1) + index);
}

class ChoicesTest : public SplitTest {
 protected:
  // What the workers say of one request: a choice ends with its `lengths`th token. Every order of
  // the events of different choices, and of source and sink, can come out.
  using Events = std::deque<std::function<void()>>;
  void SayAll(const std::vector<uint32_t>& lengths, Random& random) {
    const AttemptId id = p_->last_attempt();
    p_->Started(id, *d_);
    std::vector<Events> lines;
    bool goes_on = false;
    for (uint32_t choice = 0; choice < lengths.size(); ++choice) {
      const uint32_t length = lengths[choice];
      goes_on |= length > 1;
      // The order of the source's first tokens among each other changes too.
      lines.push_back(
          {[=, this] { p_->FirstToken(id, kPrompt, TokenAt(choice, 0), length == 1, choice); }});
      Events& sink = lines.emplace_back();
      for (uint32_t i = 0; i < length; ++i) {
        sink.push_back(
            [=, this] { d_->Token(id, kPrompt + i, TokenAt(choice, i), i + 1 == length, choice); });
      }
    }
    if (!goes_on) {  // the source has released the sink
      for (size_t i = 1; i < lines.size(); i += 2) lines[i].clear();
    }
    Shuffle(lines, random);
    Run();
  }
  static void Shuffle(std::vector<Events>& lines, Random& random) {
    for (;;) {
      std::erase_if(lines, [](const Events& line) { return line.empty(); });
      if (lines.empty()) return;
      Events& line = lines[random.Below(lines.size())];
      line.front()();
      line.pop_front();
    }
  }

  // All of n first tokens from the source, none of which ends its choice.
  void FirstTokens(uint32_t n) {
    p_->Started(p_->last_attempt(), *d_);
    for (uint32_t c = 0; c < n; ++c) {
      p_->FirstToken(p_->last_attempt(), kPrompt, TokenAt(c, 0), false, c);
    }
    Run();
  }
  void SinkToken(uint32_t choice, uint32_t index, bool last = false) {
    d_->Token(p_->last_attempt(), kPrompt + index, TokenAt(choice, index), last, choice);
  }
};

TEST_F(ChoicesTest, AnyLengthsInAnyOrderArriveOncePerChoiceAndTheRequestEndsOnce) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SeededRandom random(seed);
    std::vector<uint32_t> lengths(1 + random.Below(16));
    // Every fourth request ends at the source, as a whole.
    for (uint32_t& length : lengths) {
      length = seed % 4 == 0 ? 1 : 1 + static_cast<uint32_t>(random.Below(6));
    }
    spec_.n = static_cast<uint32_t>(lengths.size());
    Seen seen;
    Ask(seen, kPrompt);
    EXPECT_EQ(p_->submits.back().state().choices_size(), static_cast<int>(spec_.n));
    EXPECT_EQ(p_->submits.back().state().prompt_size(), static_cast<int>(kPrompt));
    SayAll(lengths, random);
    Run(milliseconds(200));
    EXPECT_EQ(seen.ends, 1);
    ASSERT_TRUE(seen.status.ok()) << seen.status;
    ASSERT_EQ(seen.choices.size(), lengths.size());
    EXPECT_EQ(seen.finishes.size(), lengths.size());
    uint32_t sum = 0;
    for (uint32_t choice = 0; choice < lengths.size(); ++choice) {
      sum += lengths[choice];
      ASSERT_EQ(seen.choices[choice].size(), lengths[choice]) << choice;
      for (uint32_t i = 0; i < lengths[choice]; ++i) {
        EXPECT_EQ(seen.choices[choice][i], TokenAt(choice, i));
      }
    }
    EXPECT_EQ(seen.summary.completion_tokens, sum);
    EXPECT_EQ(seen.summary.decode_worker.empty(), sum == lengths.size());
    EXPECT_EQ(core_->live_requests(), 0u);
    EXPECT_EQ(Metric("baton_router_inflight{worker=\"d\"}"), 0);
  }
  EXPECT_EQ(Metric("baton_router_odd_events_total"), 0);
  EXPECT_EQ(Metric("baton_router_token_mismatches_total"), 0);
  EXPECT_EQ(Metric("baton_prompt_tokens_total"), 300 * kPrompt);
}

TEST_F(ChoicesTest, TheRequestGoesOnUntilTheLastChoiceIsOver) {
  spec_.n = 3;
  Seen seen;
  Ask(seen, kPrompt);
  FirstTokens(3);
  for (uint32_t c = 0; c < 3; ++c) SinkToken(c, 0);
  SinkToken(1, 1, true);
  SinkToken(0, 1, true);
  Run(milliseconds(200));
  EXPECT_EQ(seen.finishes.size(), 2u);
  EXPECT_EQ(seen.ends, 0);
  SinkToken(2, 1, true);
  Run(milliseconds(200));
  EXPECT_EQ(seen.ends, 1);
  EXPECT_TRUE(seen.status.ok());
}

TEST_F(ChoicesTest, ACancelAfterTheFirstChoiceEndedReachesBothWorkers) {
  spec_.n = 4;
  Seen seen;
  const uint64_t number = Ask(seen, kPrompt);
  FirstTokens(4);
  for (uint32_t c = 0; c < 4; ++c) SinkToken(c, 0);
  SinkToken(2, 1, true);
  Run();
  core_->Cancel(number, absl::CancelledError("the client went away"));
  SinkToken(1, 1, true);
  Run();
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(seen.summary.completion_tokens, 5u);
  EXPECT_EQ(p_->cancels, std::vector<AttemptId>({p_->last_attempt()}));
  EXPECT_EQ(d_->cancels, std::vector<AttemptId>({p_->last_attempt()}));
  EXPECT_EQ(core_->live_requests(), 0u);
}

TEST_F(ChoicesTest, ANewAttemptRepeatsWhatEachChoiceHasAndAddsTheRest) {
  spec_.n = 3;
  Seen seen;
  Ask(seen, kPrompt);
  const AttemptId first = p_->last_attempt();
  p_->Started(first, *d_);
  p_->FirstToken(first, kPrompt, TokenAt(1, 0), true, 1);
  p_->FirstToken(first, kPrompt, TokenAt(0, 0), false, 0);
  p_->NoRoom(first);
  Run(milliseconds(100));
  ASSERT_EQ(p_->submits.size(), 2u);
  EXPECT_EQ(p_->submits[1].state().choices_size(), 3);
  p_->Started(p_->last_attempt(), *d_);
  p_->FirstToken(p_->last_attempt(), kPrompt, TokenAt(0, 0), false, 0);
  p_->FirstToken(p_->last_attempt(), kPrompt, TokenAt(1, 0), true, 1);
  p_->FirstToken(p_->last_attempt(), kPrompt, TokenAt(2, 0), false, 2);
  SinkToken(0, 0);
  SinkToken(1, 0, true);
  SinkToken(2, 0);
  SinkToken(2, 1, true);
  SinkToken(0, 1, true);
  Run(milliseconds(200));
  EXPECT_TRUE(seen.status.ok()) << seen.status;
  EXPECT_EQ(seen.ends, 1);
  EXPECT_EQ(seen.choices[0], std::vector<TokenId>({TokenAt(0, 0), TokenAt(0, 1)}));
  EXPECT_EQ(seen.choices[1], std::vector<TokenId>({TokenAt(1, 0)}));
  EXPECT_EQ(seen.choices[2], std::vector<TokenId>({TokenAt(2, 0), TokenAt(2, 1)}));
  EXPECT_EQ(Metric("baton_router_odd_events_total"), 0);
}

TEST_F(ChoicesTest, ANewAttemptThatDiffersInOneChoiceIsInternal) {
  spec_.n = 2;
  Seen seen;
  Ask(seen, kPrompt);
  FirstTokens(2);
  d_->Lost(p_->last_attempt(), worker::v1::CAUSE_NO_ROOM);
  Run(milliseconds(100));
  p_->Started(p_->last_attempt(), *d_);
  p_->FirstToken(p_->last_attempt(), kPrompt, TokenAt(0, 0), false, 0);
  p_->FirstToken(p_->last_attempt(), kPrompt, 7, false, 1);
  Run();
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(seen.status), "TOKEN_MISMATCH");
  EXPECT_EQ(Metric("baton_router_token_mismatches_total"), 1);
}

TEST_F(ChoicesTest, AChoiceThatWasNotAskedForIsAProtocolErrorOfTheWorker) {
  spec_.n = 2;
  Seen seen;
  Ask(seen, kPrompt);
  FirstTokens(2);
  SinkToken(2, 0);
  Run();
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(seen.status), "PROTOCOL");
  EXPECT_EQ(seen.tokens.size(), 2u);
  EXPECT_EQ(p_->cancels.size(), 1u);
  EXPECT_EQ(d_->cancels.size(), 1u);
}

TEST_F(ChoicesTest, EveryTokenOfEveryChoiceBringsItsLogprobAndThePromptsComeOnce) {
  spec_.n = 3;
  spec_.logprobs = {2, 0};
  p_->with_logprobs = d_->with_logprobs = true;
  Seen seen;
  Ask(seen, kPrompt);
  p_->PromptLogprobs(p_->last_attempt(), 1, kPrompt - 1);
  SeededRandom random(5);
  SayAll({2, 1, 3}, random);
  Run(milliseconds(200));
  EXPECT_TRUE(seen.status.ok()) << seen.status;
  EXPECT_EQ(seen.prompt_logprobs.size(), kPrompt - 1);
  EXPECT_EQ(seen.logprobs.size(), 6u);
}

TEST_F(ChoicesTest, RankedChoicesAreGeneratedAndScoredWithoutBeingAskedFor) {
  spec_.n = 2;
  spec_.best_of = 5;
  Seen seen;
  Ask(seen, kPrompt);
  const auto& state = p_->submits.back().state();
  EXPECT_EQ(state.choices_size(), 5);
  EXPECT_TRUE(state.logprobs().has_output());
  EXPECT_EQ(state.logprobs().output(), 0u);
  p_->with_logprobs = d_->with_logprobs = true;
  SeededRandom random(6);
  SayAll({1, 2, 3, 1, 2}, random);
  Run(milliseconds(200));
  EXPECT_TRUE(seen.status.ok()) << seen.status;
  EXPECT_EQ(seen.choices.size(), 5u);
  EXPECT_EQ(seen.summary.completion_tokens, 9u);
  EXPECT_EQ(seen.logprobs.size(), 9u);
}

TEST_F(ChoicesTest, MoreChoicesThanEverFitAreRefusedWithBothNumbers) {
  core_.reset();
  workers_.clear();
  options_.workers.clear();
  FakeWorker::Options small;
  small.name = "small";
  small.pool_blocks = 8;
  AddWorker(small);
  Start();
  // The prompt's full block is shared; each choice has the other 4 tokens and 39 of its own.
  spec_.n = 3;
  Seen refused, ranked, fits;
  Ask(refused, kPrompt, 40);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(refused.status), "NEVER_FITS");
  EXPECT_EQ(refused.status.message(),
            "generation.n: the prompt and 3 choices of max_tokens need 10 KV blocks; the largest "
            "worker has 8");
  spec_.n = 2;
  spec_.best_of = 3;
  Ask(ranked, kPrompt, 40);
  EXPECT_EQ(ranked.status.message().substr(0, 18), "generation.best_of");
  spec_.best_of = 2;
  Ask(fits, kPrompt, 40);
  EXPECT_EQ(fits.ends, 0);
}

TEST_F(ChoicesTest, LogprobsOfOneMessageAreBoundedAndThoseOfAStreamAreNot) {
  options_.workers.clear();
  core_.reset();
  workers_.clear();
  FakeWorker::Options large;
  large.name = "large";
  large.pool_blocks = 1'000'000;
  large.context_length = 100'000;
  AddWorker(large);
  Start();
  spec_.n = 4;
  spec_.logprobs.output = 4;
  spec_.streamed = false;
  Seen refused, fits, ranked, unasked, streamed;
  Ask(refused, kPrompt, 25001);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status.message().find("up to 500020 log probabilities (4 choices of 25001"),
            absl::string_view::npos)
      << refused.status;
  EXPECT_NE(refused.status.message().find("at most 500000"), absl::string_view::npos);
  Ask(fits, kPrompt, 25000);
  EXPECT_EQ(fits.ends, 0);
  spec_.streamed = true;
  Ask(streamed, kPrompt, 25001);
  EXPECT_EQ(streamed.ends, 0);
  spec_.streamed = false;
  spec_.n = 1;
  spec_.best_of = 4;  // what is dropped at the end is kept until then
  Ask(ranked, kPrompt, 25001);
  EXPECT_EQ(ranked.status.message().substr(0, 26), "generation.logprobs.output");
  spec_.best_of = 16;
  spec_.logprobs.output.reset();  // those that rank the choices are not kept
  Ask(unasked, kPrompt, 50000);
  EXPECT_EQ(unasked.ends, 0);
}

TEST_F(ChoicesTest, TheFirstDecodeStepEndsWithTheFirstSecondToken) {
  spec_.n = 2;
  Seen seen;
  Ask(seen, kPrompt);
  FirstTokens(2);
  p_->HandedOff(p_->last_attempt(), milliseconds(10), 4096);
  SinkToken(0, 0);
  SinkToken(1, 0);
  Run(milliseconds(40));
  SinkToken(1, 1, true);
  Run(milliseconds(500));
  SinkToken(0, 1, true);
  Run(milliseconds(200));
  ASSERT_TRUE(seen.status.ok()) << seen.status;
  EXPECT_LT(seen.summary.timings.first_decode_step, milliseconds(60));
  EXPECT_GT(seen.summary.timings.first_decode_step, milliseconds(20));
  EXPECT_EQ(Metric("baton_inter_token_latency_seconds_count"), 2);
}

}  // namespace
}  // namespace baton::router
