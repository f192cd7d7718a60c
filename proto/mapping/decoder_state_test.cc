#include "proto/mapping/decoder_state.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace baton::proto {
namespace {

constexpr DecoderStateLimits kLimits{100, 64};

// Every field differs from its default.
DecoderState Full() {
  DecoderState state;
  state.attempt = {{1, 2}, 3, 4};
  state.sampling = {0.5f, 7, 0.25f, 0.125f, 99, 0.75f, -1.5f, 1.25f, {{3, -4.5f}, {1, 100}}};
  state.stop = {5, true, {6, 7}, {"stop", "\xff"}, 2, true};
  state.prompt = {8, 9, 10};
  state.choices = {{{11}, true, {{-0.5f, {{11, -0.5f}}}}},
                   {{12, 13}, false, {{-1, {}}, {-2, {{1, -1}, {13, -2}}}}}};
  state.cache_namespace = "namespace";
  state.age = Duration(14);
  state.remaining = Duration(-15);
  state.logprobs = {2, 1};
  state.prompt_logprobs = {{-3, {{4, -0.25f}}}, {-5, {}}};
  return state;
}

TEST(DecoderStateMapping, GivesBackWhatItWasGiven) {
  const auto parsed = Parse(Serialize(Full()), kLimits);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, Full());
  DecoderState plain = Full();
  plain.remaining.reset();
  EXPECT_EQ(*Parse(Serialize(plain), kLimits), plain);
}

void ExpectAllFieldsSet(const google::protobuf::Message& message) {
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* field = descriptor->field(i);
    const auto* reflection = message.GetReflection();
    const bool set = field->is_repeated() ? reflection->FieldSize(message, field) > 0
                                          : reflection->HasField(message, field);
    EXPECT_TRUE(set) << field->full_name() << " is in the .proto but not mapped";
    if (!set || field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    ExpectAllFieldsSet(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, 0)
                                            : reflection->GetMessage(message, field));
  }
}

TEST(DecoderStateMapping, EveryProtoFieldIsMapped) { ExpectAllFieldsSet(ToProto(Full())); }

// Structured bindings name every member: a member that is added to a struct breaks the build here
// until Full() and the mapping have it too.
TEST(DecoderStateMapping, EveryStructMemberIsInTheProto) {
  const DecoderState state = Full();
  const auto& [attempt, sampling, stop, prompt, choices, cache_namespace, age, remaining,
               logprob_params, prompt_logprobs] = state;
  const auto& [temperature, top_k, top_p, min_p, seed, presence, frequency, repetition,
               logit_bias] = sampling;
  const auto& [bias_token, bias] = logit_bias[0];
  const auto& [max_tokens, ignore_eos, stop_token_ids, stop_strings, min_tokens, include_stop] =
      stop;
  const auto& [tokens, finished, logprobs] = choices[0];
  const auto& [logprob, top] = logprobs[0];
  const auto& [output, of_prompt] = logprob_params;
  const auto& [router, request, number] = attempt;
  EXPECT_EQ(state::v1::DecoderState::descriptor()->field_count(), 10);
  EXPECT_EQ(state::v1::SamplingParams::descriptor()->field_count(), 9);
  EXPECT_EQ(state::v1::LogitBias::descriptor()->field_count(), 2);
  EXPECT_EQ(state::v1::LogprobParams::descriptor()->field_count(), 2);
  EXPECT_EQ(state::v1::TokenLogprobs::descriptor()->field_count(), 3);
  EXPECT_EQ(state::v1::StopParams::descriptor()->field_count(), 6);
  EXPECT_EQ(state::v1::ChoiceState::descriptor()->field_count(), 3);
  EXPECT_EQ(state::v1::AttemptId::descriptor()->field_count(), 3);
  EXPECT_EQ(temperature + static_cast<float>(top_k) + top_p + min_p + static_cast<float>(seed),
            106.875f);
  EXPECT_EQ(presence + frequency + repetition + static_cast<float>(bias_token) + bias, -1.0f);
  EXPECT_EQ(logprob + static_cast<float>(top.size() + min_tokens), 2.5f);
  EXPECT_TRUE(include_stop);
  EXPECT_EQ(*output + *of_prompt + prompt_logprobs.size(), 5u);
  EXPECT_TRUE(ignore_eos && finished && remaining.has_value() && !router.IsZero());
  EXPECT_EQ(max_tokens + stop_token_ids.size() + stop_strings.size() + prompt.size() +
                tokens.size() + cache_namespace.size() + request + number,
            5u + 2 + 2 + 3 + 1 + 9 + 3 + 4);
  EXPECT_EQ(age, Duration(14));
}

struct BadCase {
  std::string field;
  std::function<void(state::v1::DecoderState&)> break_it;
};

TEST(DecoderStateMapping, RefusesWhatIsOutOfRangeAndNamesTheField) {
  using State = state::v1::DecoderState;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<BadCase> cases = {
      {"attempt.router", [](State& s) { s.clear_attempt(); }},
      {"temperature", [=](State& s) { s.mutable_sampling()->set_temperature(nan); }},
      {"temperature", [=](State& s) { s.mutable_sampling()->set_temperature(inf); }},
      {"temperature", [](State& s) { s.mutable_sampling()->set_temperature(-1); }},
      {"top_k", [](State& s) { s.mutable_sampling()->set_top_k(-1); }},
      {"top_p", [](State& s) { s.mutable_sampling()->set_top_p(0); }},
      {"top_p", [](State& s) { s.mutable_sampling()->set_top_p(1.5f); }},
      {"top_p", [=](State& s) { s.mutable_sampling()->set_top_p(nan); }},
      {"min_p", [](State& s) { s.mutable_sampling()->set_min_p(-0.5f); }},
      {"min_p", [=](State& s) { s.mutable_sampling()->set_min_p(nan); }},
      {"max_tokens", [](State& s) { s.mutable_stop()->set_max_tokens(0); }},
      {"max_tokens", [](State& s) { s.mutable_stop()->set_max_tokens(65); }},
      {"presence_penalty", [](State& s) { s.mutable_sampling()->set_presence_penalty(2.01f); }},
      {"presence_penalty", [=](State& s) { s.mutable_sampling()->set_presence_penalty(nan); }},
      {"frequency_penalty", [](State& s) { s.mutable_sampling()->set_frequency_penalty(-2.01f); }},
      {"repetition_penalty", [](State& s) { s.mutable_sampling()->set_repetition_penalty(0); }},
      {"repetition_penalty", [=](State& s) { s.mutable_sampling()->set_repetition_penalty(inf); }},
      {"logit_bias",
       [](State& s) { s.mutable_sampling()->mutable_logit_bias(0)->set_token_id(100); }},
      {"logit_bias", [=](State& s) { s.mutable_sampling()->mutable_logit_bias(0)->set_bias(nan); }},
      {"logit_bias", [](State& s) { s.mutable_sampling()->mutable_logit_bias(0)->set_bias(101); }},
      {"logit_bias",
       [](State& s) { s.mutable_sampling()->mutable_logit_bias(0)->set_token_id(1); }},
      {"logit_bias",
       [](State& s) {
         for (int i = 0; i < 1025; ++i) s.mutable_sampling()->add_logit_bias();
       }},
      {"min_tokens", [](State& s) { s.mutable_stop()->set_min_tokens(6); }},
      {"logprobs.output", [](State& s) { s.mutable_logprobs()->set_output(21); }},
      {"logprobs.prompt", [](State& s) { s.mutable_logprobs()->set_prompt(21); }},
      {"choices.logprobs", [](State& s) { s.mutable_choices(0)->clear_logprobs(); }},
      {"choices.logprobs", [](State& s) { s.mutable_logprobs()->clear_output(); }},
      {"choices.logprobs",
       [](State& s) { s.mutable_choices(0)->mutable_logprobs(0)->set_top_token_ids(0, 100); }},
      {"choices.logprobs",
       [](State& s) { s.mutable_choices(0)->mutable_logprobs(0)->add_top_logprobs(0); }},
      {"prompt_logprobs", [](State& s) { s.mutable_prompt_logprobs()->RemoveLast(); }},
      {"prompt_logprobs", [](State& s) { s.mutable_logprobs()->clear_prompt(); }},
      {"stop_token_ids", [](State& s) { s.mutable_stop()->add_stop_token_ids(100); }},
      {"stop_token_ids",
       [](State& s) {
         for (int i = 0; i < 63; ++i) s.mutable_stop()->add_stop_token_ids(1);
       }},
      {"stop_strings", [](State& s) { s.mutable_stop()->add_stop_strings(""); }},
      {"stop_strings", [](State& s) { s.mutable_stop()->add_stop_strings(std::string(257, 'x')); }},
      {"stop_strings",
       [](State& s) {
         for (int i = 0; i < 15; ++i) s.mutable_stop()->add_stop_strings("x");
       }},
      {"prompt", [](State& s) { s.clear_prompt(); }},
      {"prompt", [](State& s) { s.add_prompt(-1); }},
      {"prompt", [](State& s) { s.add_prompt(100); }},
      {"prompt",
       [](State& s) {
         while (s.prompt_size() < 64) s.add_prompt(1);
       }},
      {"choices", [](State& s) { s.clear_choices(); }},
      {"choices",
       [](State& s) {
         while (s.choices_size() < 17) *s.add_choices() = s.choices(0);
       }},
      {"choices.tokens", [](State& s) { s.mutable_choices(0)->add_tokens(1 << 30); }},
      {"choices.tokens",
       [](State& s) {
         while (s.choices(0).tokens_size() < 62) s.mutable_choices(0)->add_tokens(1);
       }},
      {"cache_namespace", [](State& s) { s.set_cache_namespace(std::string(65, 'x')); }},
      {"age_ns", [](State& s) { s.set_age_ns(~uint64_t{0}); }},
      {"age_ns", [](State& s) { s.set_age_ns((uint64_t{1} << 62) + 1); }},
  };
  for (const BadCase& bad : cases) {
    State message = ToProto(Full());
    bad.break_it(message);
    const auto parsed = FromProto(message, kLimits);
    ASSERT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << bad.field;
    EXPECT_NE(parsed.status().message().find(bad.field), std::string::npos) << parsed.status();
  }
}

// Routers refuse by the same constants, so what one lets through a worker takes.
TEST(DecoderStateMapping, TakesWhatIsAtItsLimit) {
  DecoderState state = Full();
  state.choices.resize(kMaxChoices, state.choices[0]);
  state.stop.stop_token_ids.assign(kMaxStopTokenIds, 1);
  state.stop.stop_strings.assign(kMaxStopStrings, std::string(kMaxStopStringBytes, 'x'));
  state.cache_namespace.assign(kMaxNamespaceBytes, 'x');
  const auto parsed = Parse(Serialize(state), kLimits);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, state);
}

TEST(DecoderStateMapping, AFarDeadlineIsCutToWhatAClockCanAdd) {
  for (const int64_t sign : {-1, 1}) {
    state::v1::DecoderState message = ToProto(Full());
    message.set_remaining_ns(sign * std::numeric_limits<int64_t>::max());
    const auto parsed = FromProto(message, kLimits);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->remaining, Duration(sign * (int64_t{1} << 62)));
  }
}

TEST(DecoderStateMapping, TruncatedBytesAreRefusedOrStillAValidState) {
  const std::string bytes = Serialize(Full());
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto parsed = Parse(std::string_view(bytes).substr(0, n), kLimits);
    EXPECT_TRUE(parsed.ok() || absl::IsInvalidArgument(parsed.status())) << n;
  }
}

}  // namespace
}  // namespace baton::proto
