#include "router/prompt_names.h"

#include <vector>

#include "gtest/gtest.h"
#include "kv/block_hash.h"
#include "router/cache_namespace.h"

namespace baton::router {
namespace {

std::vector<Digest> Copy(std::span<const Digest> names) { return {names.begin(), names.end()}; }

class PromptNamesTest : public testing::Test {
 protected:
  PromptNamesTest() {
    for (TokenId token = 0; token < 100; ++token) spec_.prompt.push_back(token);
    worker_.block_size = 16;
    worker_.numerics_id = Digest{1, 2};
  }

  RequestSpec spec_;
  WorkerView worker_;
};

TEST_F(PromptNamesTest, AreThoseOfTheWorkersCache) {
  PromptNames names(spec_);
  const Digest root = kv::RootHash(CacheNamespace(spec_, worker_.numerics_id));
  EXPECT_EQ(Copy(names.For(worker_)), kv::BlockHashes(root, spec_.prompt, 16));
  EXPECT_EQ(names.For(worker_).size(), 6u);
}

TEST_F(PromptNamesTest, DifferByBlockSizeNumericsTenantAndSalt) {
  PromptNames names(spec_);
  const std::vector<Digest> first = Copy(names.For(worker_));
  WorkerView other = worker_;
  other.block_size = 32;
  EXPECT_EQ(names.For(other).size(), 3u);
  other.block_size = 16;
  other.numerics_id = Digest{3, 4};
  EXPECT_NE(Copy(names.For(other)), first);
  EXPECT_EQ(Copy(names.For(worker_)), first);
  RequestSpec theirs = spec_;
  theirs.tenant = "b";
  EXPECT_NE(Copy(PromptNames(theirs).For(worker_)), first);
  theirs = spec_;
  theirs.cache_salt = "s";
  EXPECT_NE(Copy(PromptNames(theirs).For(worker_)), first);
}

// Whoever tokenizes hashes; the core finds what is there, and hashes for a worker that came later.
TEST_F(PromptNamesTest, NamesThatCameWithTheRequestAreTakenAsTheyAre) {
  const std::vector<Digest> first = Copy(PromptNames(spec_).For(worker_));
  WorkerView later = worker_;
  later.block_size = 32;
  const std::vector<Digest> second = Copy(PromptNames(spec_).For(later));
  const BlockNaming naming = {worker_.block_size, worker_.numerics_id};
  NameBlocks({&naming, 1}, spec_);
  ASSERT_EQ(spec_.block_names.size(), 1u);
  EXPECT_EQ(spec_.block_names[0].names, first);
  PromptNames names(spec_);
  EXPECT_EQ(names.For(worker_).data(), spec_.block_names[0].names.data());
  EXPECT_EQ(Copy(names.For(later)), second);
}

TEST_F(PromptNamesTest, ARequestThatBypassesCachesHasNone) {
  const BlockNaming naming = {worker_.block_size, worker_.numerics_id};
  spec_.bypass_cache = true;
  NameBlocks({&naming, 1}, spec_);
  EXPECT_TRUE(spec_.block_names[0].names.empty());
  EXPECT_TRUE(PromptNames(spec_).For(worker_).empty());
}

TEST_F(PromptNamesTest, APromptThatIsComputedWholeForItsLogProbabilitiesHasNone) {
  spec_.logprobs.prompt = 0;
  EXPECT_TRUE(PromptNames(spec_).For(worker_).empty());
}

}  // namespace
}  // namespace baton::router
