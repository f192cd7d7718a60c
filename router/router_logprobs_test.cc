#include "router/router_core_fixture.h"

namespace baton::router {
namespace {

TEST_F(SplitTest, LogprobsCrossOnceWhoeverIsFirst) {
  spec_.logprobs = {0, 0};
  p_->with_logprobs = d_->with_logprobs = true;
  for (const bool sink_first : {false, true}) {
    Seen seen;
    Ask(seen);
    const AttemptId id = p_->last_attempt();
    EXPECT_EQ(p_->submits.back().state().logprobs().prompt(), 0u);
    EXPECT_TRUE(p_->submits.back().state().logprobs().has_output());
    p_->Started(id, *d_);
    p_->PromptLogprobs(id, 1, 7);
    Run();
    if (!sink_first) {
      p_->PromptLogprobs(id, 8, 12);
      p_->FirstToken(id, 20, 100);
      Run();
    }
    d_->PromptLogprobs(id, 1, 19);
    d_->Token(id, 20, 100);
    d_->Token(id, 21, 101);
    Run();
    if (sink_first) {
      p_->PromptLogprobs(id, 8, 12);
      p_->FirstToken(id, 20, 100);
    }
    p_->HandedOff(id, milliseconds(3), 4096);
    d_->Token(id, 22, 102, true);
    Run();
    EXPECT_TRUE(seen.status.ok()) << seen.status;
    EXPECT_EQ(seen.ends, 1);
    EXPECT_EQ(seen.logprobs, std::vector<float>({-20, -21, -22}));
    ASSERT_EQ(seen.prompt_logprobs.size(), 19u);
    for (size_t i = 0; i < 19; ++i) {
      EXPECT_EQ(seen.prompt_logprobs[i], -1 - static_cast<float>(i));
    }
  }
}

TEST_F(SplitTest, ATokenWithoutWhatWasAskedForIsInternal) {
  const auto ends_internal = [this](uint32_t prompt_logprobs, bool with_logprobs) {
    Seen seen;
    const uint64_t number = Ask(seen);
    p_->Started(p_->last_attempt(), *d_);
    if (prompt_logprobs > 0) p_->PromptLogprobs(p_->last_attempt(), 1, prompt_logprobs);
    p_->with_logprobs = with_logprobs;
    p_->FirstToken(p_->last_attempt(), 20, 100);
    Run();
    const bool internal = seen.status.code() == absl::StatusCode::kInternal;
    core_->Cancel(number, absl::CancelledError(""));
    Run();
    EXPECT_EQ(seen.ends, 1);
    return internal;
  };
  EXPECT_FALSE(ends_internal(0, false));
  EXPECT_TRUE(ends_internal(0, true));
  EXPECT_TRUE(ends_internal(1, false));
  spec_.logprobs = {0, 0};
  EXPECT_FALSE(ends_internal(19, true));
  EXPECT_TRUE(ends_internal(19, false));
  EXPECT_TRUE(ends_internal(18, true));
  EXPECT_TRUE(ends_internal(20, true));
}

TEST_F(SplitTest, MinTokensAboveMaxTokensAreRefused) {
  spec_.stop.min_tokens = 9;
  Seen seen;
  Ask(seen, 20, 8);
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(seen.status.message().substr(0, 26), "generation.stop.min_tokens");
}

}  // namespace
}  // namespace baton::router
