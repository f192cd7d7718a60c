#include "text/vocab.h"

#include <gtest/gtest.h>

#include "text/byte_alphabet.h"
#include "text/test_vocab.h"

namespace baton {
namespace {

TEST(ByteAlphabet, EveryByteHasOneCharacterAndComesBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(BytesFromAlphabet(BytesToAlphabet(all)), all);
  EXPECT_EQ(BytesToAlphabet(" \n"), "ĠĊ");
  EXPECT_EQ(BytesFromAlphabet("\u0144"), std::nullopt);
  EXPECT_EQ(BytesFromAlphabet("a b"), std::nullopt);
}

TEST(Vocab, TokensStandForTheirBytesAndControlTokensForNone) {
  VocabData data = ByteVocabData();
  const TokenId space_word = AddToken(" the", TokenType::kNormal, &data);
  const TokenId user_defined = AddToken("<think> Ġ", TokenType::kUserDefined, &data);
  const TokenId unknown = AddToken("<unk>", TokenType::kUnknown, &data);
  const TokenId end = AddEndToken("<end>", &data);
  data.tokens.push_back("日本");  // not in the alphabet: stands for itself
  data.types.push_back(TokenType::kNormal);
  const auto vocab = Vocab::Create(data);
  ASSERT_TRUE(vocab.ok()) << vocab.status();
  EXPECT_EQ(vocab->Bytes(0xE2), "\xE2");
  EXPECT_EQ(vocab->Bytes(space_word), " the");
  EXPECT_EQ(vocab->Bytes(user_defined), "<think> Ġ");
  EXPECT_EQ(vocab->Bytes(unknown), "");
  EXPECT_EQ(vocab->Bytes(end), "");
  EXPECT_EQ(vocab->Bytes(end + 1), "日本");
  EXPECT_TRUE(vocab->IsControl(end) && vocab->IsControl(unknown));
  EXPECT_FALSE(vocab->IsControl(user_defined));
  EXPECT_TRUE(vocab->IsEnd(end));
  EXPECT_FALSE(vocab->IsEnd(unknown));
  EXPECT_EQ(vocab->max_token_bytes(), 10u);
  EXPECT_FALSE(vocab->Contains(-1));
  EXPECT_FALSE(vocab->Contains(vocab->size()));
}

TEST(Vocab, HashTellsDifferentVocabulariesApart) {
  const VocabData base = [] {
    VocabData data = ByteVocabData();
    AddToken("ab", TokenType::kNormal, &data);
    AddEndToken("<end>", &data);
    return data;
  }();
  const auto hash = [](const VocabData& data) { return Vocab::Create(data)->hash(); };
  EXPECT_EQ(hash(base), hash(base));
  VocabData changed = base;
  changed.tokens[256] = "ac";
  EXPECT_NE(hash(changed), hash(base));
  changed = base;
  changed.types[256] = TokenType::kControl;
  EXPECT_NE(hash(changed), hash(base));
  changed = base;
  changed.end_tokens = {256};
  EXPECT_NE(hash(changed), hash(base));
  changed = base;
  std::swap(changed.tokens[0], changed.tokens[1]);
  EXPECT_NE(hash(changed), hash(base));
}

TEST(Vocab, RefusesDataThatContradictsItself) {
  VocabData data = ByteVocabData();
  data.model = "llama";
  EXPECT_EQ(Vocab::Create(data).status().code(), absl::StatusCode::kInvalidArgument);
  data = ByteVocabData();
  data.types.pop_back();
  EXPECT_EQ(Vocab::Create(data).status().code(), absl::StatusCode::kInvalidArgument);
  data = ByteVocabData();
  data.end_tokens = {256};
  EXPECT_EQ(Vocab::Create(data).status().code(), absl::StatusCode::kInvalidArgument);
  data = VocabData();
  data.model = "gpt2";
  EXPECT_EQ(Vocab::Create(data).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
