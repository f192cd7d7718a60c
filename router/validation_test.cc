// What the command line cannot send, and what is accepted; the table of refusals is in tests/e2e.
#include "router/validation.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "router/status_details.h"
#include "text/test_vocab.h"

namespace baton::router {
namespace {

class ValidationTest : public testing::Test {
 protected:
  ValidationTest() {
    VocabData data = ByteVocabData();
    AddEndToken("<|end|>", &data);
    model_ = ModelText::Create("tiny", 100, data).value();
    generation_.mutable_prompt()->add_segments()->set_text("hello");
  }

  absl::StatusOr<ValidGeneration> Check() {
    return Validate(generation_, *model_, {model_->context_length()});
  }

  void ExpectRefused(absl::StatusCode code, const std::string& path) {
    const auto result = Check();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code) << result.status();
    EXPECT_EQ(result.status().message().substr(0, path.size()), path) << result.status();
    if (code != absl::StatusCode::kInvalidArgument) return;
    const auto payload = result.status().GetPayload("type.googleapis.com/google.rpc.BadRequest");
    ASSERT_TRUE(payload.has_value());
    google::rpc::BadRequest bad;
    ASSERT_TRUE(bad.ParseFromString(std::string(*payload)));
    EXPECT_EQ(bad.field_violations(0).field(), path);
  }

  std::unique_ptr<ModelText> model_;
  v1::Generation generation_;
};

TEST_F(ValidationTest, WhatIsNotGivenHasItsDefault) {
  const auto valid = Check();
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->sampling, SamplingParams());
  EXPECT_FALSE(valid->seed.has_value());
  EXPECT_EQ(valid->stop.max_tokens, 0u);
  EXPECT_FALSE(valid->stop.ignore_eos);
}

TEST_F(ValidationTest, EverythingGivenArrives) {
  auto& sampling = *generation_.mutable_sampling();
  sampling.set_temperature(0.5f);
  sampling.set_top_k(7);
  sampling.set_top_p(0.9f);
  sampling.set_min_p(0.1f);
  sampling.set_seed(0);
  auto& stop = *generation_.mutable_stop();
  stop.set_max_tokens(9);
  stop.add_stop_strings("\n\n");
  stop.add_stop_token_ids(3);
  stop.set_ignore_eos(true);
  generation_.set_n(1);
  generation_.set_model("tiny");
  generation_.set_request_id("abc 1");
  const auto valid = Check();
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->sampling.temperature, 0.5f);
  EXPECT_EQ(valid->sampling.top_k, 7);
  EXPECT_EQ(valid->sampling.top_p, 0.9f);
  EXPECT_EQ(valid->sampling.min_p, 0.1f);
  EXPECT_EQ(valid->seed, 0u);
  EXPECT_EQ(valid->stop.max_tokens, 9u);
  EXPECT_EQ(valid->stop.stop_strings, std::vector<std::string>({"\n\n"}));
  EXPECT_EQ(valid->stop.stop_token_ids, std::vector<TokenId>({3}));
  EXPECT_TRUE(valid->stop.ignore_eos);
  EXPECT_EQ(valid->request_id, "abc 1");
}

TEST_F(ValidationTest, PenaltiesBiasMinTokensAndLogprobsArrive) {
  auto& sampling = *generation_.mutable_sampling();
  sampling.set_presence_penalty(-2);
  sampling.set_frequency_penalty(2);
  sampling.set_repetition_penalty(0.01f);
  sampling.add_logit_bias()->set_token_id(3);
  sampling.mutable_logit_bias(0)->set_bias(-100);
  generation_.mutable_stop()->set_min_tokens(9);
  generation_.mutable_stop()->set_include_stop(true);
  generation_.mutable_logprobs()->set_output(0);
  generation_.mutable_logprobs()->set_prompt(20);
  const auto valid = Check();
  ASSERT_TRUE(valid.ok()) << valid.status();
  EXPECT_EQ(valid->sampling.presence_penalty, -2);
  EXPECT_EQ(valid->sampling.frequency_penalty, 2);
  EXPECT_EQ(valid->sampling.repetition_penalty, 0.01f);
  EXPECT_EQ(valid->sampling.logit_bias, std::vector<LogitBias>({{3, -100}}));
  EXPECT_EQ(valid->stop.min_tokens, 9u);
  EXPECT_TRUE(valid->stop.include_stop);
  EXPECT_EQ(valid->logprobs, (LogprobParams{0, 20}));
}

TEST_F(ValidationTest, PenaltiesOutOfRangeAreRefusedByPath) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  auto& sampling = *generation_.mutable_sampling();
  for (const float value : {NAN, INFINITY, -INFINITY, 2.001f, -2.001f}) {
    sampling.set_presence_penalty(value);
    ExpectRefused(bad, "generation.sampling.presence_penalty");
    sampling.clear_presence_penalty();
    sampling.set_frequency_penalty(value);
    ExpectRefused(bad, "generation.sampling.frequency_penalty");
    sampling.clear_frequency_penalty();
  }
  for (const float value : {NAN, INFINITY, 0.0f, -1.0f, 100.1f}) {
    sampling.set_repetition_penalty(value);
    ExpectRefused(bad, "generation.sampling.repetition_penalty");
  }
}

TEST_F(ValidationTest, ABiasOutOfRangeIsRefusedByItsPlace) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  auto& sampling = *generation_.mutable_sampling();
  sampling.add_logit_bias()->set_token_id(7);
  auto& bias = *sampling.add_logit_bias();
  for (const int32_t id : {-1, model_->vocab().size(), 1 << 30}) {
    bias.set_token_id(id);
    ExpectRefused(bad, "generation.sampling.logit_bias[1].token_id");
  }
  bias.set_token_id(7);
  ExpectRefused(bad, "generation.sampling.logit_bias[1].token_id");  // twice
  bias.set_token_id(8);
  for (const float value : {NAN, INFINITY, -100.1f, 100.1f}) {
    bias.set_bias(value);
    ExpectRefused(bad, "generation.sampling.logit_bias[1].bias");
  }
  for (int i = 0; i < 1023; ++i) sampling.add_logit_bias();
  ExpectRefused(bad, "generation.sampling.logit_bias");
}

TEST_F(ValidationTest, MinTokensAboveMaxTokensAndTooManyLogprobsAreRefused) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  generation_.mutable_stop()->set_min_tokens(9);
  EXPECT_TRUE(Check().ok());  // looked at again when max_tokens is known
  generation_.mutable_stop()->set_max_tokens(8);
  ExpectRefused(bad, "generation.stop.min_tokens");
  generation_.clear_stop();
  generation_.mutable_logprobs()->set_output(21);
  ExpectRefused(bad, "generation.logprobs.output");
  generation_.mutable_logprobs()->set_output(20);
  generation_.mutable_logprobs()->set_prompt(21);
  ExpectRefused(bad, "generation.logprobs.prompt");
}

TEST_F(ValidationTest, PriorityAndTenantAreTakenWithinTheirLimits) {
  EXPECT_EQ(Check()->priority, 0);
  EXPECT_EQ(Check()->tenant, "");
  for (const int priority : {-4, 4}) {
    generation_.set_priority(priority);
    EXPECT_EQ(Check()->priority, priority);
  }
  for (const int priority : {-5, 5, 2000000000}) {
    generation_.set_priority(priority);
    ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.priority");
  }
  generation_.clear_priority();
  generation_.set_tenant(std::string(128, 'x'));
  EXPECT_EQ(Check()->tenant, std::string(128, 'x'));
  for (const std::string& tenant : {std::string(129, 'x'), std::string("a\nb")}) {
    generation_.set_tenant(tenant);
    ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.tenant");
  }
}

TEST_F(ValidationTest, ASaltIsAtMost128Bytes) {
  generation_.set_cache_salt(std::string(128, '\xff'));
  generation_.set_bypass_cache(true);
  EXPECT_EQ(Check()->cache_salt, std::string(128, '\xff'));
  EXPECT_TRUE(Check()->bypass_cache);
  generation_.set_cache_salt(std::string(129, 'x'));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.cache_salt");
}

TEST_F(ValidationTest, ChoicesAreFromOneToSixteenAndTheBestOfNoFewer) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  for (const uint32_t n : {0u, 17u, UINT32_MAX}) {
    generation_.set_n(n);
    ExpectRefused(bad, "generation.n");
  }
  EXPECT_NE(Check().status().message().find("must be in [1, 16]"), absl::string_view::npos);
  generation_.set_n(16);
  EXPECT_EQ(Check()->n, 16u);
  EXPECT_EQ(Check()->best_of, 16u);
  generation_.set_n(3);
  for (const uint32_t best_of : {0u, 2u, 17u, UINT32_MAX}) {
    generation_.set_best_of(best_of);
    ExpectRefused(bad, "generation.best_of");
  }
  for (const uint32_t best_of : {3u, 16u}) {
    generation_.set_best_of(best_of);
    EXPECT_EQ(Check()->best_of, best_of);
  }
  generation_.clear_n();
  generation_.set_best_of(2);
  EXPECT_EQ(Check()->n, 1u);
  generation_.clear_best_of();
  EXPECT_EQ(Check()->best_of, 1u);
}

TEST_F(ValidationTest, NumbersOutOfRangeAreRefusedByPath) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  for (const float value : {NAN, -NAN, INFINITY, -INFINITY, -0.001f, 100.1f, 999999.0f}) {
    generation_.mutable_sampling()->set_temperature(value);
    ExpectRefused(bad, "generation.sampling.temperature");
  }
  generation_.mutable_sampling()->set_temperature(-0.0f);
  EXPECT_TRUE(Check().ok());
  for (const float value : {0.0f, -1.0f, 1.0001f, static_cast<float>(NAN)}) {
    generation_.mutable_sampling()->set_top_p(value);
    ExpectRefused(bad, "generation.sampling.top_p");
  }
  generation_.mutable_sampling()->set_top_p(1);
  generation_.mutable_stop()->set_max_tokens(std::numeric_limits<int32_t>::min());
  ExpectRefused(bad, "generation.stop.max_tokens");
}

TEST_F(ValidationTest, AnInputMustBeGivenAndNotEmpty) {
  generation_.clear_prompt();
  ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.prompt");
  generation_.mutable_prompt()->add_segments();
  ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.prompt");
  generation_.mutable_chat();
  ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.chat.messages");
  generation_.mutable_chat()->add_messages()->set_content("hi");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.chat.messages[0].role");
}

TEST_F(ValidationTest, ATextThatCannotFitIsRefusedBeforeTokenizing) {
  const size_t most = 100 * model_->vocab().max_token_bytes();
  generation_.mutable_prompt()->mutable_segments(0)->set_text(std::string(most, 'a'));
  EXPECT_TRUE(Check().ok());
  generation_.mutable_prompt()->add_segments()->set_text("a");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.prompt");
  EXPECT_EQ(ReasonOf(Check().status()), "PROMPT_TOO_LONG");
}

TEST_F(ValidationTest, NoMoreSegmentsThanTheContextHasTokens) {
  auto& prompt = *generation_.mutable_prompt();
  while (prompt.segments_size() < 100) prompt.add_segments();
  EXPECT_TRUE(Check().ok());
  prompt.add_segments();
  ExpectRefused(absl::StatusCode::kInvalidArgument, "generation.prompt.segments");
}

TEST_F(ValidationTest, ChatWithoutATemplateIsAFailedPrecondition) {
  generation_.mutable_chat()->add_messages()->set_role("user");
  const auto valid = Check();
  ASSERT_TRUE(valid.ok());
  const auto ids = model_->Encode(valid->input, 0);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(ids.status()), "CHAT_TEMPLATE");
}

TEST_F(ValidationTest, SegmentsAreEncodedOneByOne) {
  auto& prompt = *generation_.mutable_prompt();
  prompt.mutable_segments(0)->set_text("ab");
  prompt.add_segments()->mutable_token_ids()->add_ids(256);
  prompt.add_segments()->set_text("<|end|>");
  const auto ids = model_->Encode(Check()->input, 0);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ((*ids)[0], 'a');
  EXPECT_EQ((*ids)[2], 256);
  EXPECT_EQ(ids->size(), 3 + std::string("<|end|>").size());
}

}  // namespace
}  // namespace baton::router
