// Messages to the client from a core whose worker does what the test says.
#include "router/frontend.h"

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/log.h"
#include "common/metrics.h"
#include "common/sim_executor.h"
#include "gtest/gtest.h"
#include "router/client_buffer.h"
#include "router/error_reasons.h"
#include "router/fake_worker.h"
#include "router/status_details.h"
#include "text/test_vocab.h"

namespace baton::router {
namespace {

class Sink : public ResponseSink {
 public:
  explicit Sink(bool streamed) : streamed_(streamed) {}
  bool streams() const override { return streamed_; }
  void Add(v1::GenerateStreamResponse response) override {
    EXPECT_EQ(ends, 0);
    text += response.delta().text();
    responses.push_back(std::move(response));
  }
  void End(const absl::Status& end) override {
    ++ends;
    status = end;
  }
  std::vector<v1::GenerateStreamResponse> responses;
  std::string text;
  int ends = 0;
  absl::Status status;

 private:
  const bool streamed_;
};

class FrontendTest : public testing::Test {
 protected:
  FrontendTest() {
    FakeWorker::Options options;
    options.name = "d";
    worker_ = std::make_unique<FakeWorker>(node_, options);
    CoreOptions core;
    core.epoch = Epoch{1, 2};
    core.workers = {{"d", false}};
    core.prompt_window = 1;
    core.max_queue = 1;
    core_ = std::make_unique<RouterCore>(
        core, node_, [this](const std::string&) { return worker_->Connect(); }, metrics_, log_);
    model_ = ModelText::Create("tiny", 100, ByteVocabData()).value();
    frontend_ = std::make_unique<Frontend>(
        Frontend::Context{*model_, *core_, node_, pool_, random_, wall_clock_});
    core_->Start();
    Run();
    generation_.mutable_prompt()->add_segments()->set_text("hello");
    generation_.mutable_stop()->set_max_tokens(8);
  }

  void Run() { world_.RunFor(std::chrono::milliseconds(10)); }
  uint64_t Ask() {
    sink_ = std::make_shared<Sink>(streamed_);
    const uint64_t call = frontend_->Generate(generation_, node_.Now(), std::nullopt, sink_);
    Run();
    return call;
  }
  struct Of {
    uint32_t choice = 0;
    std::optional<float> logprob = std::nullopt;
  };
  void Token(uint32_t index, TokenId token, uint64_t visible, bool last = false) {
    TokenOf({}, index, token, visible, last);
  }
  void TokenOf(const Of& of, uint32_t index, TokenId token, uint64_t visible, bool last = false) {
    worker::v1::WorkerEvent event;
    *event.mutable_token()->mutable_attempt() = worker_->submits.back().state().attempt();
    event.mutable_token()->set_choice(of.choice);
    if (of.logprob.has_value()) {
      event.mutable_token()->mutable_logprobs()->set_logprob(*of.logprob);
    }
    event.mutable_token()->set_position(5 + index);
    event.mutable_token()->set_token(token);
    event.mutable_token()->set_visible_bytes(visible);
    if (last) event.mutable_token()->set_finish_reason(worker::v1::FINISH_REASON_STOP);
    worker_->Send({event});
    Run();
  }

  SimWorld world_;
  SimExecutor node_{world_, "router"};
  MetricsRegistry metrics_;
  Logger log_ = Logger::Silent();
  InlineOffloader pool_;
  SeededRandom random_{1};
  SystemWallClock wall_clock_;
  std::unique_ptr<FakeWorker> worker_;
  std::unique_ptr<RouterCore> core_;
  std::unique_ptr<ModelText> model_;
  std::unique_ptr<Frontend> frontend_;
  v1::Generation generation_;
  bool streamed_ = true;
  std::shared_ptr<Sink> sink_;
};

TEST_F(FrontendTest, OneStartedThenDeltasOneEndOfTheChoiceOneCompleted) {
  Ask();
  Token(0, 'o', 1);
  Token(1, 'k', 2, true);
  ASSERT_EQ(sink_->responses.size(), 5u);
  EXPECT_EQ(sink_->responses[0].started().prompt_token_ids_size(), 5);
  EXPECT_EQ(sink_->responses[0].started().seed(), worker_->submits[0].state().sampling().seed());
  EXPECT_EQ(sink_->responses[1].delta().text(), "o");
  EXPECT_EQ(sink_->responses[3].choice_end().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(sink_->responses[4].completed().usage().completion_tokens(), 2u);
  EXPECT_EQ(sink_->responses[4].completed().workers().decode(), "d");
  EXPECT_EQ(sink_->ends, 1);
  EXPECT_TRUE(sink_->status.ok());
}

TEST_F(FrontendTest, LogprobsNameTheTokensThatTheyBelongTo) {
  generation_.mutable_logprobs()->set_output(1);
  generation_.mutable_logprobs()->set_prompt(0);
  Ask();
  const state::v1::AttemptId attempt = worker_->submits.back().state().attempt();
  worker::v1::WorkerEvent event;
  *event.mutable_prompt_logprobs()->mutable_attempt() = attempt;
  event.mutable_prompt_logprobs()->set_position(1);
  for (int i = 1; i < 5; ++i) {
    event.mutable_prompt_logprobs()->add_logprobs()->set_logprob(-static_cast<float>(i));
  }
  worker::v1::WorkerEvent token;
  *token.mutable_token()->mutable_attempt() = attempt;
  token.mutable_token()->set_position(5);
  token.mutable_token()->set_token('o');
  token.mutable_token()->set_finish_reason(worker::v1::FINISH_REASON_LENGTH);
  token.mutable_token()->mutable_logprobs()->set_logprob(-2);
  token.mutable_token()->mutable_logprobs()->add_top_token_ids('x');
  token.mutable_token()->mutable_logprobs()->add_top_logprobs(-0.5f);
  worker_->Send({event, token});
  Run();
  ASSERT_GE(sink_->responses.size(), 3u) << sink_->status;
  const v1::PromptLogprobs& prompt = sink_->responses[1].prompt_logprobs();
  ASSERT_EQ(prompt.logprobs_size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(prompt.logprobs(i).token_id(), "hello"[i + 1]);
    EXPECT_EQ(prompt.logprobs(i).logprob(), -1 - static_cast<float>(i));
  }
  ASSERT_EQ(sink_->responses[2].delta().logprobs_size(), 1);
  const v1::TokenLogprob& output = sink_->responses[2].delta().logprobs(0);
  EXPECT_EQ(output.token_id(), 'o');
  EXPECT_EQ(output.logprob(), -2);
  ASSERT_EQ(output.top_size(), 1);
  EXPECT_EQ(output.top(0).token_id(), 'x');
  EXPECT_EQ(output.top(0).logprob(), -0.5f);
}

TEST_F(FrontendTest, OnlyVisibleBytesAreShownAndNeverPartOfACharacter) {
  Ask();
  Token(0, 'a', 0);
  EXPECT_EQ(sink_->text, "");
  Token(1, 0xC3, 1);
  EXPECT_EQ(sink_->text, "a");
  Token(2, 0xA9, 3);
  EXPECT_EQ(sink_->text, "a\u00e9");
  Token(3, 'x', 3, true);  // part of a matched stop string
  EXPECT_EQ(sink_->text, "a\u00e9");
  EXPECT_TRUE(sink_->status.ok());
}

TEST_F(FrontendTest, EachChoiceHasItsOwnTextEndAndPlaceOfItsStopString) {
  generation_.set_n(3);
  Ask();
  TokenOf({2}, 0, 'x', 1);
  TokenOf({0}, 0, 0xC3, 0);
  TokenOf({1}, 0, 'b', 0, true);  // all of it is a stop string
  TokenOf({0}, 1, 0xA9, 2);
  TokenOf({2}, 1, 'y', 2, true);
  TokenOf({0}, 2, 'z', 2, true);  // part of one
  std::map<uint32_t, std::string> texts;
  std::map<uint32_t, int> ends;
  for (const auto& response : sink_->responses) {
    if (response.has_delta()) {
      EXPECT_EQ(ends[response.delta().choice()], 0);
      texts[response.delta().choice()] += response.delta().text();
    }
    if (response.has_choice_end()) ++ends[response.choice_end().choice()];
  }
  EXPECT_EQ(texts[0], "\u00e9");
  EXPECT_EQ(texts[1], "");
  EXPECT_EQ(texts[2], "xy");
  for (uint32_t choice = 0; choice < 3; ++choice) EXPECT_EQ(ends[choice], 1) << choice;
  EXPECT_EQ(sink_->responses.back().completed().usage().prompt_tokens(), 5u);
  EXPECT_EQ(sink_->responses.back().completed().usage().completion_tokens(), 6u);
  EXPECT_EQ(sink_->ends, 1);
  EXPECT_TRUE(sink_->status.ok());
}

// What Generate sends of three ranked choices: the texts, best first.
TEST_F(FrontendTest, TheBestOfMoreChoicesComeAtTheEndWithoutTheLogprobsThatRankedThem) {
  streamed_ = false;
  for (const bool asked : {false, true}) {
    generation_.set_n(2);
    generation_.set_best_of(3);
    if (asked) generation_.mutable_logprobs()->set_output(0);
    Ask();
    TokenOf({0, -1.0f}, 0, 'a', 1);
    TokenOf({1, -4.0f}, 0, 'b', 1, true);
    TokenOf({2, -0.5f}, 0, 'c', 1);
    TokenOf({2, -0.25f}, 1, 'C', 2, true);
    EXPECT_EQ(sink_->responses.size(), 1u);  // Started
    TokenOf({0, -0.5f}, 1, 'A', 2, true);
    ASSERT_EQ(sink_->responses.size(), 6u) << sink_->status;
    const v1::Delta& best = sink_->responses[1].delta();
    const v1::Delta& second = sink_->responses[3].delta();
    EXPECT_EQ(best.text(), "cC");
    EXPECT_EQ(best.choice(), 0u);
    EXPECT_EQ(best.token_ids_size(), 2);
    EXPECT_EQ(best.logprobs_size(), asked ? 2 : 0);
    EXPECT_EQ(second.text(), "aA");
    EXPECT_EQ(second.choice(), 1u);
    EXPECT_EQ(sink_->responses[4].choice_end().choice(), 1u);
    EXPECT_EQ(sink_->responses[4].choice_end().finish_reason(), v1::FINISH_REASON_STOP);
    EXPECT_EQ(sink_->responses[5].completed().usage().completion_tokens(), 5u);
  }
}

TEST_F(FrontendTest, AStreamAllowsNoMoreChoicesThanItShowsAndSaysWhy) {
  generation_.set_best_of(2);
  Ask();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sink_->status.message().substr(0, 18), "generation.best_of");
  EXPECT_NE(sink_->status.message().find("known at the end"), absl::string_view::npos);
  generation_.set_n(2);
  Ask();
  EXPECT_EQ(sink_->ends, 0);
  EXPECT_EQ(worker_->submits.back().state().choices_size(), 2);
  EXPECT_FALSE(worker_->submits.back().state().logprobs().has_output());
}

TEST_F(FrontendTest, VisibleBytesBeyondTheTokensAreInternal) {
  Ask();
  Token(0, 'a', 7);
  EXPECT_EQ(sink_->ends, 1);
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(worker_->cancels.size(), 1u);
}

TEST_F(FrontendTest, ACallCancelledBeforeItIsTokenizedNeverReachesAWorker) {
  sink_ = std::make_shared<Sink>(streamed_);
  const uint64_t call = frontend_->Generate(generation_, node_.Now(), std::nullopt, sink_);
  frontend_->Cancel(call, absl::CancelledError("gone"));
  EXPECT_EQ(sink_->ends, 1);
  Run();
  EXPECT_TRUE(worker_->submits.empty());
  EXPECT_EQ(sink_->ends, 1);
}

TEST_F(FrontendTest, AFullTokenizerPoolRefusesWithRetryInfo) {
  pool_.set_full(true);
  Ask();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(sink_->status.GetPayload("type.googleapis.com/google.rpc.RetryInfo").has_value());
}

TEST_F(FrontendTest, AFullQueueRefusesBeforeThePromptIsTokenized) {
  Ask();
  Ask();
  pool_.set_full(true);  // tokenizing would be refused in other words
  Ask();
  EXPECT_EQ(sink_->ends, 1);
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(sink_->status.message().find("max_queue"), absl::string_view::npos) << sink_->status;
}

TEST_F(FrontendTest, PriorityAndTenantReachTheWorkersQueue) {
  generation_.set_priority(3);
  generation_.set_tenant("t");
  Ask();
  ASSERT_EQ(worker_->submits.size(), 1u);
  EXPECT_GE(worker_->submits[0].state().age_ns(), 7u * 60'000'000'000u);
}

TEST_F(FrontendTest, ShutdownEndsLiveCallsAndRefusesNewOnes) {
  Ask();
  frontend_->Shutdown(absl::UnavailableError("stopping"));
  Run();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kUnavailable);
  Ask();
  EXPECT_EQ(sink_->status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(FrontendTest, TokenizeAndDetokenizeAreEachOthersInverse) {
  v1::TokenizeRequest request;
  request.mutable_prompt()->add_segments()->set_text("abc");
  v1::TokenizeResponse ids;
  frontend_->Tokenize(request, [&ids](auto result) { ids = result.value(); });
  Run();
  ASSERT_EQ(ids.token_ids_size(), 3);
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = ids.token_ids();
  std::string text;
  frontend_->Detokenize(back, [&text](auto result) { text = result.value().text(); });
  Run();
  EXPECT_EQ(text, "abc");
  back.add_token_ids(999);
  absl::Status status;
  frontend_->Detokenize(back, [&status](auto result) { status = result.status(); });
  Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FrontendTest, ModelsAreListedWhileTheyCanBeServed) {
  EXPECT_EQ(frontend_->ListModels().models_size(), 1);
  worker_->Crash();
  Run();
  EXPECT_EQ(frontend_->ListModels().models_size(), 0);
}

v1::GenerateStreamResponse Delta(const std::string& text, int token, uint32_t choice = 0) {
  v1::GenerateStreamResponse response;
  response.mutable_delta()->set_choice(choice);
  response.mutable_delta()->set_text(text);
  response.mutable_delta()->add_token_ids(token);
  return response;
}

TEST(ClientBufferTest, WaitingDeltasMerge) {
  ClientBuffer buffer(1000);
  EXPECT_TRUE(buffer.Add(Delta("a", 1)));
  EXPECT_TRUE(buffer.Add(Delta("b", 2)));
  const auto merged = buffer.Take();
  ASSERT_TRUE(merged.has_value());
  EXPECT_EQ(merged->delta().text(), "ab");
  EXPECT_EQ(merged->delta().token_ids_size(), 2);
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.bytes(), 0u);
}

TEST(ClientBufferTest, WhatIsGivenUpTakesNoRoom) {
  ClientBuffer buffer(100);
  EXPECT_TRUE(buffer.Add(Delta("a", 1)));
  buffer.Clear();
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_FALSE(buffer.Take().has_value());
  EXPECT_TRUE(buffer.Add(Delta("b", 2)));
  EXPECT_EQ(buffer.Take()->delta().text(), "b");
}

// However the choices' tokens alternate, no more than one delta of each waits.
TEST(ClientBufferTest, DeltasOfEachChoiceMergeAndStandBeforeItsEnd) {
  ClientBuffer buffer(10000);
  for (int i = 0; i < 100; ++i) {
    for (uint32_t choice = 0; choice < 4; ++choice) {
      EXPECT_TRUE(buffer.Add(Delta(std::to_string(choice), i, choice)));
    }
    if (i != 50) continue;
    EXPECT_EQ(buffer.Take()->delta().token_ids_size(), 51);  // of choice 0; the next starts anew
    v1::GenerateStreamResponse end;
    end.mutable_choice_end()->set_choice(3);
    EXPECT_TRUE(buffer.Add(end));
  }
  std::vector<std::string> order;
  while (const auto next = buffer.Take()) {
    order.push_back(next->has_delta() ? std::to_string(next->delta().choice()) + "x" +
                                            std::to_string(next->delta().token_ids_size())
                                      : "end");
  }
  EXPECT_EQ(order, std::vector<std::string>({"1x100", "2x100", "3x100", "end", "0x49"}));
  EXPECT_EQ(buffer.bytes(), 0u);
}

TEST(ClientBufferTest, IsBoundedButTakesAnySingleMessage) {
  ClientBuffer buffer(100);
  EXPECT_TRUE(buffer.Add(Delta(std::string(500, 'x'), 1)));
  EXPECT_FALSE(buffer.Add(Delta("y", 2)));
  EXPECT_EQ(buffer.Take()->delta().text().size(), 500u);
  EXPECT_TRUE(buffer.Add(Delta("y", 2)));
}

TEST(ErrorReasonsTest, EveryReasonIsDocumented) {
  std::ifstream file("docs/errors.md");
  ASSERT_TRUE(file.good());
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  for (const char* reason : kErrorReasons) {
    EXPECT_NE(text.find("| `" + std::string(reason) + "` |"), std::string::npos) << reason;
  }
}

}  // namespace
}  // namespace baton::router
