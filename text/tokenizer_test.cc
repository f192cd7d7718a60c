#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "text/test_vocab.h"

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

class TokenizerTest : public testing::Test {
 protected:
  TokenizerTest() {
    data_ = ByteVocabData();
    hi_ = AddMerge("h", "i", &data_);
    think_ = AddToken("<think>", TokenType::kUserDefined, &data_);
    start_ = AddToken("<s>", TokenType::kControl, &data_);
    start_long_ = AddToken("<s>x", TokenType::kControl, &data_);
    end_ = AddEndToken("</s>", &data_);
    data_.bos = start_;
    tokenizer_ = *Tokenizer::Create(data_);
  }

  static Ids Bytes(const std::string& text) {
    Ids ids;
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return ids;
  }
  static Ids Join(std::initializer_list<Ids> parts) {
    Ids joined;
    for (const Ids& part : parts) joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }

  VocabData data_;
  TokenId hi_, think_, start_, start_long_, end_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(TokenizerTest, SpecialTokenTextIsOrdinaryUnlessAskedFor) {
  EXPECT_EQ(*tokenizer_->Encode("<s>hi</s>", SpecialTokenMode::kAsTokens),
            (Ids{start_, hi_, end_}));
  EXPECT_EQ(*tokenizer_->Encode("<s>hi</s>", SpecialTokenMode::kAsText),
            Join({Bytes("<s>"), {hi_}, Bytes("</s>")}));
}

TEST_F(TokenizerTest, LongestSpecialTokenWins) {
  EXPECT_EQ(*tokenizer_->Encode("<s>xhi<s>", SpecialTokenMode::kAsTokens),
            (Ids{start_long_, hi_, start_}));
}

TEST_F(TokenizerTest, UserDefinedTokensAreMatchedInAnyText) {
  EXPECT_EQ(*tokenizer_->Encode("<think>hi", SpecialTokenMode::kAsText), (Ids{think_, hi_}));
}

TEST_F(TokenizerTest, ContentCannotForgeTheSkeleton) {
  const auto encode = [&](const std::string& content) {
    const std::vector<TextSegment> segments = {
        {"<s>user\n", false}, {content, true}, {"</s>", false}};
    return *tokenizer_->EncodeSegments(segments);
  };
  EXPECT_EQ(encode("hi"), Join({{start_}, Bytes("user\n"), {hi_, end_}}));
  for (const TokenId special : {start_, start_long_, end_}) {
    const std::string& text = data_.tokens[static_cast<size_t>(special)];
    EXPECT_EQ(encode(text), Join({{start_}, Bytes("user\n"), Bytes(text), {end_}})) << text;
  }
  // Nor can it complete or begin a token together with its neighbours.
  EXPECT_EQ(encode("<"), Join({{start_}, Bytes("user\n<"), {end_}}));
  const std::vector<TextSegment> half = {{"<", false}, {"s>", true}};
  EXPECT_EQ(*tokenizer_->EncodeSegments(half), Bytes("<s>"));
  const std::vector<TextSegment> other_half = {{"<s>", false}, {"x", true}};
  EXPECT_EQ(*tokenizer_->EncodeSegments(other_half), Join({{start_}, Bytes("x")}));
}

TEST_F(TokenizerTest, OrdinaryTextIsSplitAsIfThereWereNoSegments) {
  const std::vector<TextSegment> segments = {{"h", false}, {"i", true}, {"h", true}, {"i", false}};
  EXPECT_EQ(*tokenizer_->EncodeSegments(segments), (Ids{hi_, hi_}));
  const std::vector<TextSegment> halves = {{"<", false}, {"s", false}, {">", false}};
  EXPECT_EQ(*tokenizer_->EncodeSegments(halves), (Ids{start_}));
  EXPECT_EQ(*tokenizer_->EncodeSegments({}), Ids{});
}

TEST_F(TokenizerTest, StartTokenIsAddedExactlyOnce) {
  EXPECT_EQ(tokenizer_->WithStartToken({hi_}), (Ids{hi_})) << "the model wants none";
  data_.add_bos = true;
  const auto adding = *Tokenizer::Create(data_);
  EXPECT_EQ(adding->WithStartToken({hi_}), (Ids{start_, hi_}));
  EXPECT_EQ(adding->WithStartToken({start_, hi_}), (Ids{start_, hi_}));
  EXPECT_EQ(adding->WithStartToken({}), (Ids{start_}));
  data_.bos = kNoToken;
  EXPECT_FALSE(Tokenizer::Create(data_).ok());
}

TEST_F(TokenizerTest, InvalidUtf8IsRefused) {
  for (const char* text : {"\xFF", "a\xC3", "\xED\xA0\x80"}) {
    EXPECT_EQ(tokenizer_->Encode(text, SpecialTokenMode::kAsText).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  const std::vector<TextSegment> segments = {{"\xC3", false}, {" ", true}};
  EXPECT_FALSE(tokenizer_->EncodeSegments(segments).ok());
}

TEST_F(TokenizerTest, MissingOrUnknownPreTokenizerRefusesTheModel) {
  for (const char* name : {"", "qwen2"}) {
    data_.pre_tokenizer = name;
    EXPECT_EQ(Tokenizer::Create(data_).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(TokenizerTest, MegabytesOfSpecialTokenPrefixesAreJustText) {
  std::string text;
  while (text.size() < 1'000'000) text += "<s<<|im_";
  const auto ids = tokenizer_->Encode(text, SpecialTokenMode::kAsTokens);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->size(), text.size());
}

}  // namespace
}  // namespace baton
