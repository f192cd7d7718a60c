#include "common/hash.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(HashTest, IsXxh3Of128Bits) {
  // XXH3_128bits("", seed 0), from the xxHash specification.
  EXPECT_EQ(HashBytes(std::string_view()), (Digest{0x99aa06d3014798d8, 0x6001c324468d497f}));
  EXPECT_NE(HashBytes("a"), HashBytes("b"));
}

TEST(HashTest, TokenChainIsTheSameForEveryCut) {
  const std::vector<TokenId> tokens = {1, 2, 3, 49151, 0, -1, 7};
  const std::span<const TokenId> all(tokens);
  const Digest whole = TokenChainHash(all);
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    EXPECT_EQ(ExtendTokenChain(TokenChainHash(all.first(cut)), all.subspan(cut)), whole);
  }
}

TEST(HashTest, TokenChainSeesOrderLengthAndRoot) {
  const std::vector<TokenId> tokens = {1, 2, 3};
  const Digest whole = TokenChainHash(tokens);
  EXPECT_NE(TokenChainHash(std::vector<TokenId>{2, 1, 3}), whole);
  EXPECT_NE(TokenChainHash(std::vector<TokenId>{1, 2}), whole);
  EXPECT_NE(TokenChainHash(std::vector<TokenId>{1, 2, 3, 0}), whole);
  EXPECT_NE(ExtendTokenChain(HashBytes("namespace"), tokens), whole);
  EXPECT_EQ(TokenChainHash({}), Digest{});
}

}  // namespace
}  // namespace baton
