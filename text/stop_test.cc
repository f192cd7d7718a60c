#include "text/stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "text/detokenizer.h"
#include "text/test_vocab.h"

namespace baton {
namespace {

// Every field but these has its default.
StopParams Stop(std::vector<std::string> strings, std::vector<TokenId> ids = {},
                uint32_t max_tokens = 9) {
  StopParams stop;
  stop.max_tokens = max_tokens;
  stop.stop_strings = std::move(strings);
  stop.stop_token_ids = std::move(ids);
  return stop;
}

StopParams IgnoringEnds(StopParams stop) {
  stop.ignore_eos = true;
  return stop;
}

class StopTest : public testing::Test {
 protected:
  StopTest() {
    VocabData data = ByteVocabData();
    for (const char* text : {"Hel", "lo", ", wor", "ld! ", "The ", "é", " end"}) {
      words_.push_back(AddToken(text, TokenType::kNormal, &data));
    }
    control_ = AddToken("<control>", TokenType::kControl, &data);
    end_ = AddEndToken("<end>", &data);
    other_end_ = AddEndToken("<eot>", &data);
    vocab_ = std::make_unique<Vocab>(*Vocab::Create(data));
  }

  // Raw bytes of tokens[0..n).
  std::string Raw(const std::vector<TokenId>& tokens) const {
    std::string raw;
    for (const TokenId token : tokens) raw += vocab_->Bytes(token);
    return raw;
  }

  struct Outcome {
    StopReason reason = StopReason::kNone;
    size_t tokens = 0;  // accepted
    std::string text;   // all pieces joined
    std::vector<std::string> pieces;
  };
  // What a worker and a router do together; ends for length after the last token.
  Outcome Run(const StopParams& stop, const std::vector<TokenId>& tokens) const {
    StopMatcher matcher(*vocab_, stop);
    Detokenizer detokenizer(*vocab_);
    Outcome outcome;
    for (const TokenId token : tokens) {
      outcome.reason = matcher.Accept(token);
      ++outcome.tokens;
      EXPECT_TRUE(detokenizer.Add(token).ok());
      if (outcome.reason == StopReason::kNone && outcome.tokens == tokens.size()) matcher.Finish();
      const auto piece = matcher.ended() ? detokenizer.ShowLast(matcher.visible_bytes())
                                         : detokenizer.Show(matcher.visible_bytes());
      EXPECT_TRUE(piece.ok()) << piece.status();
      outcome.pieces.push_back(piece.value_or(""));
      outcome.text += outcome.pieces.back();
      if (matcher.ended()) break;
    }
    return outcome;
  }

  std::vector<TokenId> words_;
  TokenId control_, end_, other_end_;
  std::unique_ptr<Vocab> vocab_;
};

TEST_F(StopTest, EveryStopStringThatCrossesATokenEdgeEndsTheTextBeforeIt) {
  std::vector<TokenId> tokens;
  for (const int word : {4, 0, 1, 2, 3, 0, 1, 5, 6}) tokens.push_back(words_[word]);
  const std::string raw = Raw(tokens);
  int crossing = 0;
  for (size_t length = 1; length <= 12; ++length) {
    for (size_t at = 0; at + length <= raw.size(); ++at) {
      const std::string stop_string = raw.substr(at, length);
      const size_t match = raw.find(stop_string);
      const Outcome outcome = Run(Stop({stop_string}), tokens);
      EXPECT_EQ(outcome.reason, StopReason::kStopString);
      EXPECT_EQ(outcome.text, DecodeUtf8Lossy(raw.substr(0, match))) << stop_string;
      size_t end = 0;  // the token in which the match ends is the last
      for (size_t i = 0; i < outcome.tokens; ++i) end += vocab_->Bytes(tokens[i]).size();
      EXPECT_GE(end, match + length);
      EXPECT_LT(end - vocab_->Bytes(tokens[outcome.tokens - 1]).size(), match + length);
      ++crossing;
    }
  }
  EXPECT_GT(crossing, 250);
}

TEST_F(StopTest, WhatMayBecomeAStopStringIsHeldBackAndShownWhenItDoesNot) {
  const Outcome outcome = Run(Stop({"Hello, you"}), {words_[0], words_[1], words_[2]});
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"", "", "Hello, wor"}));
  const Outcome at_the_end = Run(Stop({"Hello"}), {words_[4], words_[0], end_});
  EXPECT_EQ(at_the_end.pieces, (std::vector<std::string>{"The ", "", "Hel"}));
  EXPECT_EQ(at_the_end.reason, StopReason::kEndToken);
}

TEST_F(StopTest, TheEarliestEndWinsAndThenTheLongestMatch) {
  const std::vector<TokenId> tokens = {'x', 'a', 'b', 'c', 'd'};
  EXPECT_EQ(Run(Stop({"abcd", "bc"}), tokens).text, "xa");
  EXPECT_EQ(Run(Stop({"c", "abc"}), tokens).text, "x");
}

TEST_F(StopTest, ACharacterIsNeverShownInPart) {
  const std::string rocket = "🚀";
  std::vector<TokenId> tokens;
  for (const char byte : rocket) tokens.push_back(static_cast<uint8_t>(byte));
  Outcome outcome = Run(Stop({}), tokens);
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"", "", "", rocket}));
  tokens.pop_back();  // length in the middle of it
  outcome = Run(Stop({}), tokens);
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"", "", "\uFFFD"}));
  // A held-back stop string may itself begin inside the next character.
  outcome = Run(Stop({"\u00e9!"}), {'a', 0xC3, 0xA9, '?', 'b'});
  EXPECT_EQ(outcome.pieces, (std::vector<std::string>{"a", "", "", "\u00e9?", "b"}));
}

TEST_F(StopTest, EndTokensEndUnlessIgnoredAndStopTokensAlways) {
  const std::vector<TokenId> tokens = {'a', end_, 'b', other_end_, 'c', control_, '.', 'd'};
  Outcome outcome = Run(Stop({}), tokens);
  EXPECT_EQ(outcome.reason, StopReason::kEndToken);
  EXPECT_EQ(outcome.text, "a");
  outcome = Run(IgnoringEnds(Stop({})), tokens);
  EXPECT_EQ(outcome.reason, StopReason::kNone);
  EXPECT_EQ(outcome.text, "abc.d");
  outcome = Run(IgnoringEnds(Stop({}, {'.'})), tokens);
  EXPECT_EQ(outcome.reason, StopReason::kStopToken);
  EXPECT_EQ(outcome.text, "abc") << "the token that ended the choice is not part of the text";
  outcome = Run(IgnoringEnds(Stop({}, {control_})), tokens);
  EXPECT_EQ(outcome.text, "abc") << "stopping on a hidden token cuts nothing else";
}

TEST_F(StopTest, UntilMinTokensNoIdEndsTheChoice) {
  StopParams stop = Stop({}, {words_[0]});
  stop.min_tokens = 2;
  // An end or stop id that came all the same is a token like any other.
  EXPECT_EQ(Run(stop, {words_[0], end_, words_[0], words_[1]}).tokens, 3u);
  EXPECT_EQ(Run(stop, {words_[1], words_[1], end_, words_[1]}).reason, StopReason::kEndToken);
  StopMatcher matcher(*vocab_, stop);
  const std::vector<TokenId> ids = {words_[0], end_, other_end_};
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(matcher.ForbiddenNext(), testing::UnorderedElementsAreArray(ids));
    matcher.Accept(words_[1]);
  }
  EXPECT_TRUE(matcher.ForbiddenNext().empty());
  EXPECT_EQ(StopMatcher(*vocab_, IgnoringEnds(stop)).ForbiddenNext(),
            std::vector<TokenId>({words_[0]}));
}

TEST_F(StopTest, NoStopStringEndsTheChoiceBeforeTheLastOfMinTokens) {
  StopParams stop = Stop({"aa", "lo"});
  stop.min_tokens = 3;
  const Outcome passed = Run(stop, {words_[0], words_[1], words_[2], words_[3]});
  EXPECT_EQ(passed.text, "Hello, world! ");
  // The second "aa" begins inside of the first, which was let pass.
  const Outcome overlapping = Run(stop, {'a', 'a', 'a', 'b'});
  EXPECT_EQ(overlapping.reason, StopReason::kStopString);
  EXPECT_EQ(overlapping.tokens, 3u);
  EXPECT_EQ(overlapping.text, "a");
}

TEST_F(StopTest, IncludeStopKeepsWhatEndedTheChoiceAndNothingBehindIt) {
  StopParams stop = Stop({"lo, w"}, {words_[5]});
  stop.include_stop = true;
  EXPECT_EQ(Run(stop, {words_[0], words_[1], words_[2], words_[3]}).text, "Hello, w");
  EXPECT_EQ(Run(stop, {words_[0], words_[5], words_[3]}).text, "Helé");
  EXPECT_EQ(Run(stop, {words_[0], end_}).text, "Hel");  // control tokens have no bytes
}

TEST_F(StopTest, FirstTokenMayEndTheChoice) {
  EXPECT_EQ(Run(Stop({}), {end_}).text, "");
  EXPECT_EQ(Run(Stop({"Hel"}), {words_[0]}).text, "");
}

TEST_F(StopTest, RandomStreamsShowExactlyTheTextBeforeTheFirstMatch) {
  const unsigned seed = 20;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string alphabet = "aab\xE2\x82\xAC\xFF";
  const auto text = [&](size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += alphabet[random() % alphabet.size()];
    return out;
  };
  for (int round = 0; round < 5000; ++round) {
    StopParams stop = Stop({});
    for (size_t i = random() % 4; i > 0; --i) stop.stop_strings.push_back(text(1 + random() % 6));
    const std::string raw = text(30);
    // Reference: the shortest prefix of raw that ends with a stop string.
    size_t visible = raw.size();
    bool stopped = false;
    for (size_t end = 1; end <= raw.size() && !stopped; ++end) {
      for (const std::string& s : stop.stop_strings) {
        if (end < s.size() || raw.compare(end - s.size(), s.size(), s) != 0) continue;
        visible = std::min(stopped ? visible : end, end - s.size());
        stopped = true;
      }
    }
    std::vector<TokenId> tokens;
    for (const char byte : raw) tokens.push_back(static_cast<uint8_t>(byte));
    const Outcome outcome = Run(stop, tokens);
    ASSERT_EQ(outcome.text, DecodeUtf8Lossy(raw.substr(0, visible)));
    ASSERT_EQ(outcome.reason == StopReason::kStopString, stopped);
    for (const std::string& piece : outcome.pieces) ASSERT_TRUE(IsValidUtf8(piece));
  }
}

TEST_F(StopTest, ReplayedTokensGiveTheSameState) {
  const StopParams stop = Stop({"lo, world"});
  StopMatcher first(*vocab_, stop);
  for (const int word : {0, 1, 2}) first.Accept(words_[word]);
  StopMatcher replayed(*vocab_, stop);
  for (const int word : {0, 1, 2}) replayed.Accept(words_[word]);
  EXPECT_EQ(replayed.visible_bytes(), first.visible_bytes());
  EXPECT_EQ(replayed.Accept(words_[3]), StopReason::kStopString);
  EXPECT_EQ(replayed.visible_bytes(), 3u);
}

TEST_F(StopTest, WorkIsLinearInTheBytesEvenForRepetitiveStopStrings) {
  StopParams stop = Stop({});
  for (size_t i = 0; i < kMaxStopStrings; ++i) {
    stop.stop_strings.push_back(std::string(kMaxStopStringBytes - 1 - i, 'a') + "b");
  }
  StopMatcher matcher(*vocab_, stop);
  const uint64_t bytes = 20000;
  for (uint64_t i = 0; i < bytes; ++i) ASSERT_EQ(matcher.Accept('a'), StopReason::kNone);
  EXPECT_LE(matcher.steps(), 2 * bytes * kMaxStopStrings);
}

TEST(ValidateStopParams, NamesFieldAndLimit) {
  const auto message = [](const StopParams& stop) {
    const absl::Status status = ValidateStopParams(stop, 100);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_NE(message(Stop({}, {}, 0)).find("max_tokens"), std::string::npos);
  const std::vector<std::string> many(1000, "x");
  EXPECT_EQ(message(Stop(many)), "stop.stop_strings has 1000 entries, at most 16 are allowed");
  EXPECT_EQ(message(Stop({"x", ""})), "stop.stop_strings[1] is empty");
  EXPECT_EQ(message(Stop({std::string(257, 'x')})),
            "stop.stop_strings[0] has 257 bytes, at most 256 are allowed");
  EXPECT_EQ(message(Stop({}, {100})),
            "stop.stop_token_ids[0] is 100, outside the vocabulary of 100 tokens");
  EXPECT_NE(message(Stop({}, {-1})), "");
  EXPECT_NE(message(Stop({}, std::vector<TokenId>(65, 1))), "");
  EXPECT_TRUE(ValidateStopParams(Stop({}, {99, 0}), 100).ok());
}

}  // namespace
}  // namespace baton
