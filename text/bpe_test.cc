#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <string>

#include "text/test_vocab.h"

namespace baton {
namespace {

// The definition, step by step: the pair of lowest rank, of those the leftmost.
std::vector<TokenId> MergeByDefinition(const BpeModel& model, std::string_view piece) {
  std::vector<TokenId> tokens;
  for (const char c : piece) tokens.push_back(model.ByteToken(static_cast<uint8_t>(c)));
  for (;;) {
    uint32_t best = BpeModel::kNoRank;
    size_t at = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const uint32_t rank = model.RankOf(tokens[i], tokens[i + 1]);
      if (rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best == BpeModel::kNoRank) return tokens;
    tokens[at] = model.merge(best).merged;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

std::vector<TokenId> Encode(const BpeModel& model, std::string_view piece) {
  BpeMerger merger(model);
  std::vector<TokenId> tokens;
  merger.Encode(piece, &tokens);
  return tokens;
}

// Merges of random pairs of tokens that exist already.
VocabData RandomMerges(std::mt19937* random, int merges) {
  VocabData data = ByteVocabData();
  std::vector<std::string> parts = {"a", "b", "c", "\xE2"};
  while (merges > 0) {
    const std::string left = parts[(*random)() % parts.size()];
    const std::string right = parts[(*random)() % parts.size()];
    if (left.size() + right.size() > 12) continue;
    if (std::find(parts.begin(), parts.end(), left + right) != parts.end()) continue;
    AddMerge(left, right, &data);
    parts.push_back(left + right);
    --merges;
  }
  return data;
}

TEST(Bpe, MergesAsTheDefinitionDoes) {
  const unsigned seed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int vocabulary = 0; vocabulary < 30; ++vocabulary) {
    const auto model = BpeModel::Create(RandomMerges(&random, 40));
    ASSERT_TRUE(model.ok()) << model.status();
    for (int round = 0; round < 100; ++round) {
      std::string piece;
      for (size_t n = random() % 60; n > 0; --n) piece += "abc\xE2"[random() % 4];
      ASSERT_EQ(Encode(*model, piece), MergeByDefinition(*model, piece)) << piece;
    }
  }
}

TEST(Bpe, LowerRanksThatAppearLaterStillComeFirst) {
  VocabData data = ByteVocabData();
  const TokenId abc = AddMerge("ab", "c", &data);  // better rank, possible only after the next
  const TokenId ab = AddMerge("a", "b", &data);
  data.tokens.push_back("");  // unused
  data.types.push_back(TokenType::kUnused);
  const auto model = BpeModel::Create(data);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Encode(*model, "abcab"), (std::vector<TokenId>{abc, ab}));
}

TEST(Bpe, BytesWithoutATokenAreLeftOutAndTheirNeighboursMayMerge) {
  VocabData data = ByteVocabData();
  const TokenId ab = AddMerge("a", "b", &data);
  data.tokens[0x01] = "unused";
  const auto model = BpeModel::Create(data);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(Encode(*model,
                   "a\x01"
                   "b"),
            (std::vector<TokenId>{ab}));
  EXPECT_EQ(Encode(*model, "\x01"), (std::vector<TokenId>{}));
}

TEST(Bpe, AMillionBytesOfOnePieceTakeALinearNumberOfPairs) {
  VocabData data = ByteVocabData();
  std::string word = "a";
  while (word.size() < 1024) {
    AddMerge(word, word, &data);
    word += word;
  }
  const auto model = BpeModel::Create(data);
  ASSERT_TRUE(model.ok()) << model.status();
  BpeMerger merger(*model);
  std::vector<TokenId> tokens;
  const size_t bytes = 1'000'000;
  merger.Encode(std::string(bytes, 'a'), &tokens);
  EXPECT_LE(merger.steps(), 3 * bytes);
  EXPECT_EQ(tokens.size(), bytes / 1024 + std::popcount(bytes % 1024));
}

TEST(Bpe, RefusesMergesThatNameNoToken) {
  const auto code = [](const std::string& merge) {
    VocabData data = ByteVocabData();
    data.merges.push_back(merge);
    return BpeModel::Create(data).status().code();
  };
  for (const char* merge : {"a b", "a zz", "zz a", "ab", " a", "a ", ""}) {
    EXPECT_EQ(code(merge), absl::StatusCode::kInvalidArgument) << merge;
  }
  VocabData twice = ByteVocabData();
  AddToken("a", TokenType::kNormal, &twice);
  EXPECT_EQ(BpeModel::Create(twice).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
