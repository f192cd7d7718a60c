// From messages to ids and from sampled ids to shown text, on the real model's vocabulary and
// template: what an independent implementation recorded.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "text/detokenizer.h"
#include "text/stop.h"
#include "text/template.h"
#include "text/test_files.h"
#include "text/test_model.h"

namespace baton {
namespace {

using Json = nlohmann::json;

class PromptOracleTest : public testing::Test {
 protected:
  void SetUp() override {
    BATON_REQUIRE_ENVIRONMENT("BATON_SHARED");
    BATON_REQUIRE_ENVIRONMENT("BATON_MODEL");
    LoadTestModel(TestEnvironment("BATON_MODEL"), &model_);
    cases_ = Json::parse(ReadTestFile(TestEnvironment("BATON_SHARED") +
                                      "/oracles/models/smollm2-135m-instruct-q4_1_greedy.json"))
                 .at("cases");
    ASSERT_EQ(cases_.size(), 27u);
  }

  std::vector<TextSegment> Segments(const Json& oracle) const {
    if (oracle.at("kind") != "chat") return {{oracle.at("text"), true}};
    ChatInput input;
    for (const Json& message : oracle.at("messages")) {
      input.messages.push_back({message.at("role"), message.at("content")});
    }
    const auto chat =
        ChatTemplate::Parse(model_.data.chat_template, TemplateOptionsFor(model_.data));
    EXPECT_TRUE(chat.ok()) << chat.status();
    const auto segments = chat->Render(input);
    EXPECT_TRUE(segments.ok()) << segments.status();
    return *segments;
  }

  TestModel model_;
  Json cases_;
};

// The recording knew nothing of the model's digit splitter: it cut all prompts as "gpt-2" does.
// That shows in one prompt, where two spaces stand before a digit ("\n\n  1. Source"); the ids of
// tokenizer_oracle_test.cc, recorded with the splitter, settle what is right.
TEST_F(PromptOracleTest, PromptsRenderAndEncodeAsRecorded) {
  VocabData without_digit_splitter = model_.data;
  without_digit_splitter.pre_tokenizer = "gpt-2";
  const auto recorder = Tokenizer::Create(without_digit_splitter);
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  int equal = 0;
  for (const Json& oracle : cases_) {
    const std::vector<TextSegment> segments = Segments(oracle);
    std::string text;
    for (const TextSegment& segment : segments) text += segment.text;
    EXPECT_EQ(text, oracle.at("text").get<std::string>());
    const auto expected = oracle.at("prompt_tokens").get<std::vector<TokenId>>();
    EXPECT_EQ(*(*recorder)->EncodeSegments(segments), expected) << text;
    const auto ids = model_.tokenizer->EncodeSegments(segments);
    ASSERT_TRUE(ids.ok()) << ids.status();
    equal += model_.tokenizer->WithStartToken(*ids) == expected ? 1 : 0;
  }
  EXPECT_EQ(equal, 26);
}

TEST_F(PromptOracleTest, AnswersAreShownAsRecordedWithoutTheEndToken) {
  for (const Json& oracle : cases_) {
    const auto tokens = oracle.at("greedy").get<std::vector<TokenId>>();
    StopParams stop;
    stop.max_tokens = static_cast<uint32_t>(tokens.size());
    StopMatcher matcher(*model_.vocab, stop);
    Detokenizer detokenizer(*model_.vocab);
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_FALSE(matcher.ended());
      const bool ends = matcher.Accept(tokens[i]) != StopReason::kNone;
      EXPECT_EQ(ends, tokens[i] == 2);
      if (!ends && i + 1 == tokens.size()) matcher.Finish();
      ASSERT_TRUE(detokenizer.Add(tokens[i]).ok());
      const auto piece = matcher.ended() ? detokenizer.ShowLast(matcher.visible_bytes())
                                         : detokenizer.Show(matcher.visible_bytes());
      ASSERT_TRUE(piece.ok()) << piece.status();
      text += *piece;
    }
    std::string expected = oracle.at("greedy_text");
    const std::string end = "<|im_end|>";
    if (expected.size() >= end.size() &&
        expected.compare(expected.size() - end.size(), end.size(), end) == 0) {
      expected.resize(expected.size() - end.size());
    }
    EXPECT_EQ(text, expected);
  }
}

TEST_F(PromptOracleTest, NoSpecialTokenOfTheModelCanBeForged) {
  const auto chat = ChatTemplate::Parse(model_.data.chat_template, TemplateOptionsFor(model_.data));
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto specials_in = [&](const std::string& content) {
    ChatInput input;
    input.messages = {{"user", content}};
    const auto segments = chat->Render(input);
    EXPECT_TRUE(segments.ok()) << segments.status();
    const auto ids = model_.tokenizer->EncodeSegments(*segments);
    EXPECT_TRUE(ids.ok()) << ids.status();
    std::vector<TokenId> specials;
    for (const TokenId id : *ids) {
      if (model_.vocab->IsControl(id)) specials.push_back(id);
    }
    return specials;
  };
  const std::vector<TokenId> skeleton = specials_in("hello");
  EXPECT_EQ(skeleton, (std::vector<TokenId>{1, 2, 1, 2, 1}));
  int forged = 0;
  for (size_t i = 0; i < model_.data.tokens.size(); ++i) {
    if (model_.data.types[i] != TokenType::kControl) continue;
    EXPECT_EQ(specials_in(model_.data.tokens[i]), skeleton) << model_.data.tokens[i];
    EXPECT_EQ(specials_in("a" + model_.data.tokens[i] + "b"), skeleton);
    ++forged;
  }
  EXPECT_EQ(forged, 17);
}

}  // namespace
}  // namespace baton
