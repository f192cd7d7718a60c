#include "kv/prefix_cache.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics.h"
#include "common/random.h"
#include "gtest/gtest.h"
#include "kv/block_fork.h"
#include "kv/block_table.h"

namespace baton::kv {
namespace {

constexpr uint32_t kSize = 16;
constexpr uint32_t kGroups = 2;

std::vector<TokenId> Tokens(uint32_t count, TokenId seed = 0) {
  std::vector<TokenId> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>(i * 7 + seed * 1000);
  return tokens;
}

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Digest OneHashForAll(const Digest& /*parent*/, std::span<const TokenId> /*tokens*/) {
  return {1, 2};
}

// A cache over a pool of two groups, and sequences that compute their tokens at once.
class PrefixCacheTest : public ::testing::Test {
 protected:
  struct Running {
    CachedLease room;
    std::vector<TokenId> tokens;
    uint32_t found() const { return room.chain.blocks; }
  };

  void Make(uint32_t blocks, decltype(PrefixCache::Options::hash) hash = &BlockHash) {
    pool_.emplace(std::vector<uint32_t>(kGroups, blocks));
    cache_.emplace(PrefixCache::Options{.block_size = kSize,
                                        .hash = hash,
                                        .on_event = [this](const CacheEvent& e) { OnEvent(e); }},
                   *pool_, metrics_);
  }
  void TearDown() override {
    Check();
    cache_.reset();
    EXPECT_EQ(In(BlockState::kFree), kGroups * pool_->capacity()[0]);
    EXPECT_TRUE(pool_->CheckIntegrity().ok()) << pool_->CheckIntegrity();
  }

  void OnEvent(const CacheEvent& event) {
    events_.push_back(event);
    if (event.action == CacheEvent::Action::kStored) {
      EXPECT_TRUE(held_.insert(event.hash).second);
    } else {
      EXPECT_EQ(held_.erase(event.hash), 1);
    }
  }

  absl::StatusOr<Running> TryStart(const std::vector<TokenId>& tokens, std::string space = "a") {
    Running run{{}, tokens};
    const auto wanted = static_cast<uint32_t>((tokens.size() + kSize - 1) / kSize);
    const auto query = cache_->Query(space, run.tokens, run.tokens.size());
    absl::StatusOr<CachedLease> room = cache_->Take(*query, {wanted, wanted});
    if (!room.ok()) return room.status();
    run.room = *std::move(room);
    return run;
  }
  Running Start(const std::vector<TokenId>& tokens, std::string space = "a") {
    absl::StatusOr<Running> run = TryStart(tokens, std::move(space));
    EXPECT_TRUE(run.ok()) << run.status();
    return *std::move(run);
  }
  void Store(Running& run) {
    CacheChain& chain = run.room.chain;
    for (uint32_t i = chain.blocks; chain.open && (i + 1) * kSize <= run.tokens.size(); ++i) {
      cache_->Store(chain, std::span(run.tokens).subspan(i * kSize, kSize), run.room.lease);
    }
    Check();
  }
  // Starts, stores and ends; returns the blocks found.
  uint32_t Pass(const std::vector<TokenId>& tokens, std::string space = "a") {
    Running run = Start(tokens, std::move(space));
    const uint32_t found = run.found();
    Store(run);
    return found;
  }

  uint32_t In(BlockState state) const { return pool_->Counts()[static_cast<size_t>(state)]; }
  void Check() const {
    const BlockCounts counts = pool_->Counts();
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0u), kGroups * pool_->capacity()[0]);
    EXPECT_TRUE(pool_->CheckIntegrity().ok()) << pool_->CheckIntegrity();
    EXPECT_TRUE(cache_->CheckIntegrity().ok()) << cache_->CheckIntegrity();
    EXPECT_EQ(held_.size(), cache_->size());
  }

  MetricsRegistry registry_;
  PrefixCacheMetrics metrics_{registry_};
  std::optional<BlockPool> pool_;
  std::optional<PrefixCache> cache_;
  std::vector<CacheEvent> events_;
  std::set<Digest> held_;
};

TEST_F(PrefixCacheTest, FindsTheLongestPrefixInWholeBlocks) {
  Make(64);
  const std::vector<TokenId> tokens = Tokens(100);
  EXPECT_EQ(Pass(tokens), 0u);
  for (const uint32_t length : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 95u, 96u, 97u, 100u}) {
    EXPECT_EQ(Pass({tokens.begin(), tokens.begin() + length}), length / kSize) << length;
  }
  EXPECT_EQ(Pass(Joined(tokens, Tokens(60, 5))), 6u);
  std::vector<TokenId> other = tokens;
  other[40] += 1;
  EXPECT_EQ(Pass(other), 2u);
}

TEST_F(PrefixCacheTest, LooksNoFurtherThanAsked) {
  Make(64);
  const std::vector<TokenId> tokens = Tokens(64);
  Pass(tokens);
  for (const auto& [most, blocks] : std::vector<std::pair<size_t, size_t>>{
           {0, 0}, {15, 0}, {16, 1}, {63, 3}, {64, 4}, {1000, 4}}) {
    EXPECT_EQ(cache_->Query("a", tokens, most)->hashes.size(), blocks) << most;
  }
  EXPECT_FALSE(cache_->Query("", tokens, 64).has_value());
}

TEST_F(PrefixCacheTest, ANamespaceSeesItsOwnBlocksAlone) {
  Make(64);
  EXPECT_EQ(Pass(Tokens(48), "a"), 0u);
  EXPECT_EQ(Pass(Tokens(48), "b"), 0u);
  EXPECT_EQ(Pass(Tokens(48), "a"), 3u);
  EXPECT_EQ(Pass(Tokens(48), "b"), 3u);
  EXPECT_EQ(cache_->size(), 6u);
}

TEST_F(PrefixCacheTest, EqualHashesAreNotBelieved) {
  Make(64, &OneHashForAll);
  EXPECT_EQ(Pass(Tokens(16), "a"), 0u);
  EXPECT_EQ(Pass(Tokens(16, 1), "a"), 0u);                   // other tokens
  EXPECT_EQ(Pass(Tokens(16), "b"), 0u);                      // another namespace
  EXPECT_EQ(Pass(Joined(Tokens(16), Tokens(16)), "a"), 1u);  // the second has another parent
  EXPECT_EQ(cache_->size(), 1u);  // nothing else could be stored under the name
}

TEST_F(PrefixCacheTest, ClosedChainsStoreNothing) {
  Make(64);
  Running run = Start(Tokens(32));
  run.room.chain = {};
  cache_->Store(run.room.chain, std::span(run.tokens).first(kSize), run.room.lease);
  EXPECT_EQ(cache_->size(), 0u);
}

TEST_F(PrefixCacheTest, GivesUpLeavesFirstTheLeastRecentlyUsedOnesFirst) {
  Make(8);
  const std::vector<TokenId> root = Tokens(32);
  const std::vector<TokenId> left = Joined(root, Tokens(32, 1));
  const std::vector<TokenId> right = Joined(root, Tokens(32, 2));
  Pass(left);
  Pass(right);  // 2 shared, 2 + 2 own
  Pass(left);   // now `right` is the older one
  EXPECT_EQ(In(BlockState::kCached), 12u);
  const auto without_storing = [&](uint32_t blocks) { Start(Tokens(blocks * kSize, 9)); };
  without_storing(3);  // two are free
  EXPECT_EQ(Start({right.begin(), right.begin() + 64}).found(), 3u);
  without_storing(6);
  EXPECT_EQ(cache_->size(), 2u);
  EXPECT_EQ(Start(root).found(), 2u);
  without_storing(7);
  EXPECT_EQ(Start(root).found(), 1u);
  EXPECT_EQ(metrics_.evictions.Value(), 5);
}

TEST_F(PrefixCacheTest, NeverGivesUpWhatASequenceHolds) {
  Make(4);
  Running run = Start(Tokens(32));
  Store(run);
  EXPECT_EQ(pool_->free_blocks(), (std::vector<uint32_t>{2, 2}));
  EXPECT_EQ(TryStart(Tokens(48, 3)).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache_->size(), 2u);
  run.room.lease.Reset();
  EXPECT_EQ(pool_->free_blocks(), (std::vector<uint32_t>{4, 4}));
  EXPECT_TRUE(TryStart(Tokens(64, 3)).ok());
  EXPECT_EQ(cache_->size(), 0u);
}

TEST_F(PrefixCacheTest, BlocksThatAreFoundAreNotGivenUpForTheRest) {
  Make(4);
  Pass(Tokens(48));
  // 3 found and 2 more: only one is left.
  EXPECT_EQ(TryStart(Joined(Tokens(48), Tokens(32, 1))).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache_->size(), 3u);
  EXPECT_EQ(Start(Joined(Tokens(48), Tokens(16, 1))).found(), 3u);
}

TEST_F(PrefixCacheTest, SeveralTakeAllOrNoneAndNothingThatOneFoundIsGivenUpForAnother) {
  Make(6);
  const std::vector<TokenId> left = Joined(Tokens(kSize), Tokens(kSize, 1));
  const std::vector<TokenId> right = Joined(Tokens(kSize), Tokens(kSize, 2));
  Pass(left);
  Pass(right);
  const auto left_query = cache_->Query("a", left, left.size());
  const auto right_query = cache_->Query("a", right, right.size());
  const auto take = [&](uint32_t blocks, uint32_t spare = 0) {
    const std::vector<uint32_t> wanted(kGroups, blocks);
    const PrefixCache::Want wants[] = {{*left_query, wanted}, {*right_query, wanted}};
    return cache_->TakeAll(wants, spare);
  };
  // Three are there, one of them for both: three more fit, and four do not.
  EXPECT_EQ(take(4).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(take(3, 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(In(BlockState::kCached), kGroups * 3);
  Start(Tokens(kSize, 9));  // gives back a free block that was used: still three are cached
  const auto taken = take(3, 1);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ((*taken)[0].chain.blocks, 2u);
  EXPECT_EQ((*taken)[1].chain.blocks, 2u);
  EXPECT_EQ((*taken)[0].lease.blocks()[0][0], (*taken)[1].lease.blocks()[0][0]);
  EXPECT_EQ(pool_->free_blocks(), std::vector<uint32_t>(kGroups, 1));
  Check();
}

TEST_F(PrefixCacheTest, ASequenceThatComputedWhatIsThereTakesTheBlocksThatAreThere) {
  Make(16);
  Running first = Start(Tokens(48));
  Running second = Start(Joined(Tokens(48), Tokens(16, 1)));
  EXPECT_EQ(In(BlockState::kReserved), 14u);
  Store(first);
  Store(second);
  EXPECT_EQ(In(BlockState::kLive), 8u);
  EXPECT_EQ(In(BlockState::kFree), 24u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(first.room.lease.blocks()[1][i], second.room.lease.blocks()[1][i]);
    EXPECT_EQ(pool_->SharesOf({0, first.room.lease.blocks()[0][i]}), 2u);
  }
  first.room.lease.Reset();
  EXPECT_EQ(In(BlockState::kLive), 8u);
}

TEST_F(PrefixCacheTest, ForkedChoicesEachGoOnFromThePrompt) {
  Make(32);
  const std::vector<TokenId> prompt = Tokens(40);  // two blocks and a half
  Running run = Start(Tokens(16 * 8));
  const std::vector<uint32_t> wanted(kGroups, 2 + 3 * 2);
  run.room = *cache_->Take(*cache_->Query("a", prompt, 40), wanted);
  for (uint32_t i = 0; i < 2; ++i) {
    cache_->Store(run.room.chain, std::span(prompt).subspan(i * kSize, kSize), run.room.lease);
  }
  ForkedBlocks forked = ForkBlocks(BlockTable(std::move(run.room.lease), kSize, 40), 3, 3);
  for (TokenId i = 0; i < 3; ++i) {
    CacheChain chain = run.room.chain;
    BlockLease lease = forked.tables[i].TakeLease();
    const std::vector<TokenId> all = Joined(prompt, Tokens(24, i + 1));
    cache_->Store(chain, std::span(all).subspan(32, 16), lease);
    cache_->Store(chain, std::span(all).subspan(48, 16), lease);
    Check();
    EXPECT_EQ(Start(all).found(), 4u);
  }
  forked.tables.clear();
  EXPECT_EQ(In(BlockState::kCached), kGroups * (2u + 3 * 2));
  EXPECT_EQ(In(BlockState::kCached) + In(BlockState::kFree), kGroups * 32u);
}

TEST_F(PrefixCacheTest, EveryTransitionOfABlockIsCounted) {
  Make(4);
  const auto expect = [this](BlockState state, uint32_t blocks, const char* what) {
    EXPECT_EQ(In(state), kGroups * blocks) << what;
    Check();
  };
  Running run = Start(Tokens(64));
  expect(BlockState::kReserved, 4, "free to reserved");
  run.room.lease.SetState(BlockState::kFilling, 0, 2);
  expect(BlockState::kFilling, 2, "reserved to filling");
  cache_->Store(run.room.chain, std::span(run.tokens).first(kSize), run.room.lease);
  expect(BlockState::kLive, 1, "filling to live: kept");
  run.room.lease.SetState(BlockState::kFilling, 0, 3);
  expect(BlockState::kFilling, 2, "what is kept is whole");
  run.room.lease.SetState(BlockState::kLive, 0, 4);
  expect(BlockState::kLive, 4, "filling and reserved to live");
  {
    const BlockPin pin = pool_->Pin(run.room.lease.blocks());
    run.room.lease.Truncate(1);
    expect(BlockState::kQuarantined, 3, "live to quarantined");
    run.room.lease.Reset();
    expect(BlockState::kQuarantined, 4, "kept to quarantined");
    EXPECT_EQ(TryStart(Tokens(16, 3)).status().code(), absl::StatusCode::kResourceExhausted);
    const Running again = Start(Tokens(16));
    EXPECT_EQ(again.found(), 1u);
    expect(BlockState::kLive, 1, "quarantined to live: found");
  }
  expect(BlockState::kFree, 3, "quarantined to free");
  expect(BlockState::kCached, 1, "quarantined to cached");
  {
    const Running again = Start(Tokens(16));
    expect(BlockState::kLive, 1, "cached to live: found");
  }
  expect(BlockState::kCached, 1, "live to cached");
  {
    Running other = Start(Tokens(64, 1));
    expect(BlockState::kReserved, 4, "cached to free to reserved: given up");
    other.room.lease.SetState(BlockState::kFilling, 0, 1);
    other.room.lease.SetState(BlockState::kLive, 1, 2);
  }
  expect(BlockState::kFree, 4, "reserved, filling and live to free");
}

TEST_F(PrefixCacheTest, BlocksThatAStepStillReadsAreGivenUpWithTheirParents) {
  Make(4);
  BlockPin pin;
  {
    Running run = Start(Tokens(48));
    Store(run);
    GroupBlocks last = run.room.lease.blocks();
    for (std::vector<BlockId>& group : last) group.erase(group.begin(), group.begin() + 2);
    pin = pool_->Pin(last);
  }
  EXPECT_EQ(In(BlockState::kCached), kGroups * 2u);
  EXPECT_EQ(In(BlockState::kQuarantined), kGroups * 1u);
  EXPECT_TRUE(TryStart(Tokens(48, 1)).ok());  // 1 free, 2 cached
  EXPECT_EQ(cache_->size(), 0u);
  EXPECT_EQ(In(BlockState::kQuarantined), kGroups * 1u);
}

TEST_F(PrefixCacheTest, EventsNameTheChain) {
  Make(4);
  Pass(Tokens(48));
  const std::vector<Digest> names = BlockHashes(RootHash("a"), Tokens(48), kSize);
  ASSERT_EQ(events_.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events_[i], (CacheEvent{CacheEvent::Action::kStored, i, names[i],
                                      i == 0 ? RootHash("a") : names[i - 1]}));
  }
  Start(Tokens(64, 1));
  ASSERT_EQ(events_.size(), 6u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events_[3 + i].action, CacheEvent::Action::kRemoved);
    EXPECT_EQ(events_[3 + i].hash, names[2 - i]);
  }
}

TEST_F(PrefixCacheTest, ASnapshotInPagesHasEveryBlockOnce) {
  Make(16);
  Pass(Tokens(80));
  Pass(Joined(Tokens(32), Tokens(48, 1)), "b");
  std::set<Digest> seen;
  uint32_t from = 0;
  do {
    const CacheSnapshotPage page = cache_->Snapshot(from, 3);
    EXPECT_LE(page.blocks.size(), 3u);
    for (const CacheEvent& event : page.blocks) EXPECT_TRUE(seen.insert(event.hash).second);
    EXPECT_TRUE(page.next == 0 || page.next > from);
    from = page.next;
  } while (from != 0);
  EXPECT_EQ(seen, held_);
}

TEST_F(PrefixCacheTest, BlocksOutliveTheCacheInTheirLeases) {
  Make(8);
  Running run = Start(Tokens(48));
  Store(run);
  cache_.reset();
  EXPECT_EQ(In(BlockState::kLive), kGroups * 3u);
  run.room.lease.Reset();
  EXPECT_EQ(In(BlockState::kFree), kGroups * 8u);
  cache_.emplace(PrefixCache::Options{}, *pool_, metrics_);
  held_.clear();
}

TEST_F(PrefixCacheTest, CountsRequestsAndTokens) {
  Make(16);
  Pass(Tokens(15));
  Pass(Tokens(40));
  Pass(Tokens(40));
  EXPECT_EQ(metrics_.misses.Value(), 1);
  EXPECT_EQ(metrics_.hits.Value(), 1);
  EXPECT_EQ(metrics_.cached_tokens.Value(), 32);
}

TEST_F(PrefixCacheTest, ToLookIsNoUse) {
  Make(16);
  const std::vector<TokenId> tokens = Tokens(40);
  Pass(tokens);
  EXPECT_EQ(cache_->HeldTokens(*cache_->Query("a", tokens, tokens.size())), 32u);
  EXPECT_EQ(cache_->HeldTokens(*cache_->Query("a", tokens, 31)), 16u);
  EXPECT_EQ(cache_->HeldTokens(*cache_->Query("b", tokens, tokens.size())), 0u);
  EXPECT_EQ(metrics_.hits.Value(), 0);
  EXPECT_EQ(metrics_.cached_tokens.Value(), 0);
}

TEST_F(PrefixCacheTest, ABlockThatIsKeptWithoutANameIsAContradiction) {
  Make(4);
  const BlockLease lease = *pool_->Take({1, 1});
  const BlockRef ref{0, lease.blocks()[0][0]};
  pool_->Keep(ref);
  EXPECT_EQ(cache_->CheckIntegrity().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(pool_->CheckIntegrity().ok());
  pool_->Unkeep(ref);
}

// What a list of stored chains would find, as long as nothing is given up.
TEST_F(PrefixCacheTest, RandomSequencesFindWhatAModelFinds) {
  const uint64_t seed = 20261130;
  SCOPED_TRACE(seed);
  SeededRandom random(seed);
  Make(24);
  std::vector<Running> running;
  uint32_t refused = 0;
  for (int i = 0; i < 3000; ++i) {
    if (!running.empty() && random.Below(2) == 0) {
      std::swap(running[random.Below(running.size())], running.back());
      if (random.Below(4) != 0) Store(running.back());
      running.pop_back();
    } else {
      std::vector<TokenId> tokens;
      const uint64_t length = 1 + random.Below(100);
      while (tokens.size() < length) {
        tokens.insert(tokens.end(), 8, static_cast<TokenId>(random.Below(2)));
      }
      const std::string space(1, static_cast<char>('a' + random.Below(2)));
      uint32_t expected = 0;
      for (const Digest& name : BlockHashes(RootHash(space), tokens, kSize)) {
        if (!held_.contains(name)) break;
        ++expected;
      }
      absl::StatusOr<Running> run = TryStart(tokens, space);
      refused += run.ok() ? 0 : 1;
      if (!run.ok()) continue;
      EXPECT_EQ(run->found(), expected);
      running.push_back(*std::move(run));
      if (random.Below(2) == 0) Store(running.back());
    }
    Check();
    if (HasFailure()) FAIL() << "at " << i;
  }
  EXPECT_GT(refused, 0u);
  EXPECT_GT(metrics_.evictions.Value(), 100);
  EXPECT_GT(metrics_.hits.Value(), 100);
}

}  // namespace
}  // namespace baton::kv
