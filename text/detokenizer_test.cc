#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "text/test_vocab.h"

namespace baton {
namespace {

class DetokenizerTest : public testing::Test {
 protected:
  DetokenizerTest() {
    VocabData data = ByteVocabData();
    AddToken("\xF0\x9F", TokenType::kNormal, &data);
    AddToken("\x9A\x80 go", TokenType::kNormal, &data);
    AddToken(" word", TokenType::kNormal, &data);
    AddEndToken("<end>", &data);
    vocab_ = std::make_unique<Vocab>(*Vocab::Create(data));
  }
  std::unique_ptr<Vocab> vocab_;
};

TEST_F(DetokenizerTest, ShowsOnlyTheVisiblePrefix) {
  Detokenizer detokenizer(*vocab_);
  ASSERT_TRUE(detokenizer.Add(256).ok());
  EXPECT_EQ(*detokenizer.Show(0), "");
  ASSERT_TRUE(detokenizer.Add(257).ok());
  EXPECT_EQ(*detokenizer.Show(4), "🚀");
  EXPECT_EQ(*detokenizer.Show(4), "");
  EXPECT_EQ(*detokenizer.ShowLast(5), " ");
}

TEST_F(DetokenizerTest, NeverEmitsPartOfACharacterWhateverTheWorkerSays) {
  Detokenizer detokenizer(*vocab_);
  ASSERT_TRUE(detokenizer.Add(256).ok());
  ASSERT_TRUE(detokenizer.Add(257).ok());
  EXPECT_EQ(*detokenizer.Show(1), "");
  EXPECT_EQ(*detokenizer.Show(3), "");
  EXPECT_EQ(*detokenizer.Show(4), "🚀");
  ASSERT_TRUE(detokenizer.Add(0xE2).ok());
  EXPECT_EQ(*detokenizer.ShowLast(8), " go\uFFFD");
}

TEST_F(DetokenizerTest, RefusesIdsAndNumbersThatCannotBe) {
  Detokenizer detokenizer(*vocab_);
  EXPECT_EQ(detokenizer.Add(vocab_->size()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(detokenizer.Add(-1).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(detokenizer.Add('a').ok());
  EXPECT_EQ(detokenizer.Show(2).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(detokenizer.Show(1).ok());
  EXPECT_EQ(detokenizer.Show(0).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<TokenId> outside = {'a', 1000000};
  EXPECT_FALSE(DecodeTokens(*vocab_, outside).ok());
}

TEST_F(DetokenizerTest, JoinedPiecesAreTheOneShotTextForTenThousandIdLists) {
  const unsigned seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 10000; ++round) {
    std::vector<TokenId> tokens(random() % 30);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab_->size());
    Detokenizer detokenizer(*vocab_);
    std::string joined;
    uint64_t visible = 0;
    for (const TokenId token : tokens) {
      ASSERT_TRUE(detokenizer.Add(token).ok());
      visible += random() % (detokenizer.raw_bytes() - visible + 1);
      const auto piece = detokenizer.Show(visible);
      ASSERT_TRUE(piece.ok());
      ASSERT_TRUE(IsValidUtf8(*piece));
      joined += *piece;
    }
    joined += *detokenizer.ShowLast(detokenizer.raw_bytes());
    ASSERT_EQ(joined, *DecodeTokens(*vocab_, tokens));
  }
}

}  // namespace
}  // namespace baton
