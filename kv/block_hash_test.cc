#include "kv/block_hash.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace baton::kv {
namespace {

std::vector<TokenId> Tokens(size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 7);
  return tokens;
}

TEST(BlockHash, HasTheValueThatWasWrittenDown) {
  const Digest root = RootHash("namespace");
  const std::vector<Digest> hashes = BlockHashes(root, Tokens(32), 16);
  ASSERT_EQ(hashes.size(), 2);
  EXPECT_EQ(root, (Digest{0x389219e6035e34b0, 0x458bb002db752c4d}));
  EXPECT_EQ(hashes[1], (Digest{0x9c75319c80e4bf09, 0xfdd239d26911b22f}));
}

TEST(BlockHash, OfAPrefixIsThePrefixOfTheHashes) {
  const std::vector<TokenId> tokens = Tokens(100);
  const Digest root = RootHash("");
  const std::vector<Digest> all = BlockHashes(root, tokens, 16);
  ASSERT_EQ(all.size(), 6);
  EXPECT_EQ(BlockHashes(root, tokens, 16, 2), std::vector<Digest>(all.begin(), all.begin() + 2));
  EXPECT_EQ(BlockHashes(root, std::span(tokens).first(47), 16),
            std::vector<Digest>(all.begin(), all.begin() + 2));
  EXPECT_EQ(BlockHash(all[0], std::span(tokens).subspan(16, 16)), all[1]);
  EXPECT_TRUE(BlockHashes(root, std::span(tokens).first(15), 16).empty());
}

TEST(BlockHash, DependsOnTheRootAndOnEveryEarlierTokenAndItsPlace) {
  std::set<Digest> last;
  const auto add = [&](std::string_view space, const std::vector<TokenId>& tokens) {
    return last.insert(BlockHashes(RootHash(space), tokens, 16).back()).second;
  };
  const std::vector<TokenId> tokens = Tokens(48);
  EXPECT_TRUE(add("a", tokens));
  EXPECT_TRUE(add("b", tokens));
  EXPECT_TRUE(add("", tokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<TokenId> other = tokens;
    other[i] += 1000;
    EXPECT_TRUE(add("a", other)) << i;
  }
  std::vector<TokenId> swapped = tokens;
  std::swap_ranges(swapped.begin(), swapped.begin() + 16, swapped.begin() + 16);
  EXPECT_TRUE(add("a", swapped));
  EXPECT_FALSE(add("a", tokens));
}

}  // namespace
}  // namespace baton::kv
