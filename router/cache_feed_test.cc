#include "router/cache_feed.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "common/random.h"
#include "gtest/gtest.h"
#include "router/extent_index.h"

namespace baton::router {
namespace {

using kv::CacheEvent;
using kv::CacheEventBatch;
using kv::CacheSnapshotPage;

constexpr uint32_t kExtent = ExtentIndex::kExtentBlocks;
const CacheFeed::Ask kFirstPage = 0;
const CacheFeed::Ask kNothing = std::nullopt;

// Until what removed places held is out of memory.
void Tidy(ExtentIndex& index) {
  const uint32_t place = *index.AddPlace();
  for (int i = 0; i < 4096; ++i) {
    index.Set(place, Digest{}, 0);
    index.Clear(place, Digest{});
  }
}

// A worker's cache: numbers its changes and hands out batches and pages.
class FakeCache {
 public:
  // Everything of the chain up to `blocks` that it does not hold yet.
  void Store(const std::vector<Digest>& chain, size_t blocks) {
    for (size_t i = 0; i < blocks; ++i) {
      const CacheEvent event{CacheEvent::Action::kStored, static_cast<uint32_t>(i), chain[i],
                             i == 0 ? Digest{} : chain[i - 1]};
      if (held_.emplace(chain[i], event).second) Note(event);
    }
  }

  // The chain's blocks from `blocks` on, last one first, which nothing else may continue.
  void Cut(const std::vector<Digest>& chain, size_t blocks) {
    for (size_t i = chain.size(); i > blocks; --i) {
      const auto found = held_.find(chain[i - 1]);
      if (found != held_.end()) RemoveLeaf(found);
    }
  }

  bool RemoveSomeLeaf(SeededRandom& random) {
    std::set<Digest> parents;
    for (const auto& [hash, event] : held_) parents.insert(event.parent);
    std::vector<Digest> leaves;
    for (const auto& [hash, event] : held_) {
      if (!parents.contains(hash)) leaves.push_back(hash);
    }
    if (leaves.empty()) return false;
    RemoveLeaf(held_.find(leaves[random.Below(leaves.size())]));
    return true;
  }

  CacheEventBatch Batch() {
    CacheEventBatch batch{sent_, {waiting_.begin(), waiting_.end()}};
    sent_ = batch.next_sequence();
    waiting_.clear();
    return batch;
  }

  // By name, so that children and parents come in any order.
  CacheSnapshotPage Page(uint32_t begin, size_t size) const {
    CacheSnapshotPage page;
    page.begin = begin;
    page.as_of = sent_ + waiting_.size();
    size_t at = 0;
    for (const auto& [hash, event] : held_) {
      if (at >= begin && at < begin + size) page.blocks.push_back(event);
      ++at;
    }
    if (at > begin + size) page.next = begin + static_cast<uint32_t>(size);
    return page;
  }

  size_t Held(const std::vector<Digest>& chain) const {
    size_t held = 0;
    while (held < chain.size() && held_.contains(chain[held])) ++held;
    return held;
  }
  size_t size() const { return held_.size(); }

 private:
  void Note(const CacheEvent& event) { waiting_.push_back(event); }
  void RemoveLeaf(std::map<Digest, CacheEvent>::iterator leaf) {
    CacheEvent event = leaf->second;
    event.action = CacheEvent::Action::kRemoved;
    held_.erase(leaf);
    Note(event);
  }

  std::map<Digest, CacheEvent> held_;
  std::vector<CacheEvent> waiting_;
  uint64_t sent_ = 0;
};

class CacheFeedTest : public testing::Test {
 protected:
  std::vector<Digest> Chain(size_t blocks) {
    std::vector<Digest> chain;
    for (size_t i = 0; i < blocks; ++i) {
      const uint64_t hi = random_.Next64();
      chain.push_back({hi, random_.Next64()});
    }
    return chain;
  }

  uint32_t Known(const std::vector<Digest>& chain) const {
    if (!feed_.place().has_value()) return 0;
    std::vector<uint32_t> held;
    index_.Match(chain, held);
    return held[*feed_.place()];
  }

  // A session with an empty cache.
  void Begin() {
    EXPECT_EQ(feed_.Started(), kFirstPage);
    EXPECT_EQ(feed_.OnPage(cache_.Page(0, 100)), kNothing);
    EXPECT_TRUE(feed_.whole());
  }

  void Pages(size_t size) {
    CacheFeed::Ask ask = 0;
    while (ask.has_value()) ask = feed_.OnPage(cache_.Page(*ask, size));
  }

  SeededRandom random_{11};
  ExtentIndex index_{ExtentIndex::kLeastBytes};
  CacheFeed feed_{index_};
  FakeCache cache_;
  const std::vector<Digest> chain_ = Chain(100);
};

TEST_F(CacheFeedTest, FollowsWhatIsStoredAndRemoved) {
  Begin();
  cache_.Store(chain_, 40);
  EXPECT_EQ(feed_.OnBatch(cache_.Batch()), kNothing);
  EXPECT_EQ(Known(chain_), 40u);
  cache_.Store(chain_, 75);
  feed_.OnBatch(cache_.Batch());
  EXPECT_EQ(Known(chain_), 75u);
  for (const size_t left : {74, 64, 63, 33, 32, 31, 1, 0}) {
    cache_.Cut(chain_, left);
    feed_.OnBatch(cache_.Batch());
    EXPECT_EQ(Known(chain_), left);
  }
  EXPECT_EQ(index_.entries(), 0u);
}

TEST_F(CacheFeedTest, AChainTakesOneEntryAnExtentHoweverItCame) {
  Begin();
  for (size_t blocks = 1; blocks <= 90; ++blocks) {
    cache_.Store(chain_, blocks);
    if (blocks % 7 == 0) feed_.OnBatch(cache_.Batch());
  }
  feed_.OnBatch(cache_.Batch());
  EXPECT_EQ(index_.entries(), 6u);
  EXPECT_EQ(Known(chain_), 90u);
}

TEST_F(CacheFeedTest, WhatAnotherChainStillContinuesStays) {
  Begin();
  std::vector<Digest> other(chain_.begin(), chain_.begin() + 20);
  for (const Digest& name : Chain(10)) other.push_back(name);
  cache_.Store(chain_, 25);
  cache_.Store(other, 30);
  feed_.OnBatch(cache_.Batch());
  EXPECT_EQ(Known(chain_), 25u);
  EXPECT_EQ(Known(other), 30u);
  cache_.Cut(chain_, 20);
  feed_.OnBatch(cache_.Batch());
  EXPECT_EQ(Known(chain_), 20u);
  EXPECT_EQ(Known(other), 30u);
  cache_.Cut(other, 0);
  feed_.OnBatch(cache_.Batch());
  EXPECT_EQ(index_.entries(), 0u);
}

TEST_F(CacheFeedTest, ALostBatchIsRepairedByPages) {
  Begin();
  cache_.Store(chain_, 40);
  cache_.Batch();
  cache_.Store(chain_, 60);
  EXPECT_EQ(feed_.OnBatch(cache_.Batch()), kFirstPage);
  EXPECT_EQ(feed_.counts().gaps, 1u);
  EXPECT_FALSE(feed_.whole());
  EXPECT_EQ(Known(chain_), 0u) << "what is half known is not believed";
  Pages(7);
  EXPECT_TRUE(feed_.whole());
  EXPECT_EQ(Known(chain_), 60u);
  EXPECT_EQ(index_.entries(), 4u) << "blocks that came after their children are not entered twice";
}

TEST_F(CacheFeedTest, ARepeatedOrLateBatchChangesNothing) {
  Begin();
  cache_.Store(chain_, 40);
  const CacheEventBatch first = cache_.Batch();
  cache_.Cut(chain_, 10);
  const CacheEventBatch second = cache_.Batch();
  feed_.OnBatch(first);
  feed_.OnBatch(second);
  EXPECT_EQ(feed_.OnBatch(first), kNothing);
  EXPECT_EQ(Known(chain_), 10u);
  EXPECT_EQ(feed_.counts().repeated, 40u);
  EXPECT_EQ(feed_.counts().gaps, 0u);
}

TEST_F(CacheFeedTest, ABatchThatOverlapsIsTakenFromWhereItIsNew) {
  Begin();
  cache_.Store(chain_, 40);
  CacheEventBatch batch = cache_.Batch();
  feed_.OnBatch(batch);
  cache_.Cut(chain_, 30);
  const CacheEventBatch more = cache_.Batch();
  batch.events.insert(batch.events.end(), more.events.begin(), more.events.end());
  EXPECT_EQ(feed_.OnBatch(batch), kNothing);
  EXPECT_EQ(Known(chain_), 30u);
  EXPECT_EQ(feed_.counts().events, 50u);
}

TEST_F(CacheFeedTest, BatchesInTheWrongOrderAreAGapAndTheLateOneIsInThePages) {
  Begin();
  cache_.Store(chain_, 20);
  const CacheEventBatch first = cache_.Batch();
  cache_.Store(chain_, 40);
  const CacheEventBatch second = cache_.Batch();
  EXPECT_EQ(feed_.OnBatch(second), kFirstPage);
  EXPECT_EQ(feed_.OnBatch(first), kNothing);
  Pages(100);
  EXPECT_EQ(Known(chain_), 40u);
}

TEST_F(CacheFeedTest, EventsBetweenPagesCount) {
  Begin();
  cache_.Store(chain_, 60);
  cache_.Batch();
  cache_.Store(chain_, 80);
  ASSERT_EQ(feed_.OnBatch(cache_.Batch()), kFirstPage);
  CacheFeed::Ask ask = 0;
  size_t left = 80;
  while (ask.has_value()) {
    const CacheSnapshotPage page = cache_.Page(*ask, 30);
    cache_.Cut(chain_, left -= 5);
    ask = feed_.OnPage(page);
    EXPECT_EQ(feed_.OnBatch(cache_.Batch()), kNothing);
  }
  EXPECT_LT(left, 80u);
  EXPECT_EQ(Known(chain_), left);
}

TEST_F(CacheFeedTest, AGapBetweenPagesBeginsTheSnapshotAgain) {
  Begin();
  cache_.Store(chain_, 60);
  cache_.Batch();
  cache_.Store(chain_, 80);
  ASSERT_EQ(feed_.OnBatch(cache_.Batch()), kFirstPage);
  EXPECT_EQ(feed_.OnPage(cache_.Page(0, 30)), CacheFeed::Ask(30));
  cache_.Cut(chain_, 70);
  cache_.Batch();
  cache_.Cut(chain_, 65);
  EXPECT_EQ(feed_.OnBatch(cache_.Batch()), kFirstPage);
  EXPECT_EQ(feed_.OnPage(cache_.Page(30, 30)), kNothing) << "a page of the snapshot given up";
  Pages(30);
  EXPECT_EQ(Known(chain_), 65u);
  EXPECT_EQ(feed_.counts().resyncs, 3u);
}

TEST_F(CacheFeedTest, APageOlderThanTheEventsThatFollowedItIsNotBelieved) {
  Begin();
  cache_.Store(chain_, 40);
  cache_.Batch();
  cache_.Store(chain_, 41);
  ASSERT_EQ(feed_.OnBatch(cache_.Batch()), kFirstPage);
  ASSERT_EQ(feed_.OnPage(cache_.Page(0, 20)), CacheFeed::Ask(20));
  const CacheSnapshotPage late = cache_.Page(20, 30);
  cache_.Cut(chain_, 5);
  feed_.OnBatch(cache_.Batch());
  EXPECT_EQ(feed_.OnPage(late), kFirstPage);
  Pages(100);
  EXPECT_EQ(Known(chain_), 5u);
}

TEST_F(CacheFeedTest, APageThatNeverComesIsAskedForAgain) {
  EXPECT_EQ(feed_.Started(), kFirstPage);
  CacheFeed::Ask ask;
  for (int batches = 0; batches < 1000 && !ask.has_value(); ++batches) {
    ask = feed_.OnBatch(cache_.Batch());
  }
  EXPECT_EQ(ask, kFirstPage);
}

TEST_F(CacheFeedTest, ARestartedWorkerBeginsWithNothing) {
  Begin();
  cache_.Store(chain_, 40);
  feed_.OnBatch(cache_.Batch());
  EXPECT_EQ(Known(chain_), 40u);
  const uint32_t before = *feed_.place();
  cache_ = FakeCache();
  Begin();
  EXPECT_EQ(Known(chain_), 0u);
  EXPECT_NE(feed_.place(), before);
  cache_.Store(chain_, 17);
  feed_.OnBatch(cache_.Batch());
  EXPECT_EQ(Known(chain_), 17u);
}

TEST_F(CacheFeedTest, ARouterThatComesLaterLearnsWhatIsThere) {
  cache_.Store(chain_, 90);
  cache_.Batch();
  EXPECT_EQ(feed_.Started(), kFirstPage);
  Pages(16);
  EXPECT_EQ(Known(chain_), 90u);
}

TEST_F(CacheFeedTest, ALostWorkerHoldsNothingAndWhatComesLateIsIgnored) {
  Begin();
  cache_.Store(chain_, 40);
  feed_.OnBatch(cache_.Batch());
  feed_.Lost();
  EXPECT_EQ(feed_.place(), std::nullopt);
  std::vector<uint32_t> held;
  index_.Match(chain_, held);
  EXPECT_EQ(std::count(held.begin(), held.end(), 0u), static_cast<ptrdiff_t>(held.size()));
  cache_.Store(chain_, 50);
  EXPECT_EQ(feed_.OnBatch(cache_.Batch()), kNothing);
  EXPECT_EQ(feed_.OnPage(cache_.Page(0, 100)), kNothing);
}

TEST_F(CacheFeedTest, WithoutAPlaceInTheIndexItAsksForNothing) {
  while (index_.AddPlace().has_value()) {
  }
  EXPECT_EQ(feed_.Started(), kNothing);
  cache_.Store(chain_, 50);
  EXPECT_EQ(feed_.OnBatch(cache_.Batch()), kNothing);
  EXPECT_FALSE(feed_.whole());
}

// A wire that loses, repeats and reorders batches and pages: once it behaves, all is right.
TEST_F(CacheFeedTest, WhateverTheWireDoesTheIndexComesRight) {
  for (int seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    SeededRandom random(static_cast<uint64_t>(seed));
    std::vector<std::vector<Digest>> chains = {Chain(60)};
    for (int i = 0; i < 6; ++i) {
      const auto keep = static_cast<ptrdiff_t>(random.Below(60));
      std::vector<Digest> chain(chains[0].begin(), chains[0].begin() + keep);
      for (const Digest& name : Chain(60 - static_cast<size_t>(keep))) chain.push_back(name);
      chains.push_back(chain);
    }
    FakeCache cache;
    ExtentIndex index(ExtentIndex::kLeastBytes);
    CacheFeed feed(index);
    CacheFeed::Ask ask = feed.Started();
    std::deque<CacheEventBatch> batches;
    const auto deliver = [&](const CacheEventBatch& batch) {
      const CacheFeed::Ask again = feed.OnBatch(batch);
      if (again.has_value()) ask = again;
    };
    for (int step = 0; step < 400; ++step) {
      const bool wild = step < 300;
      const auto& chain = chains[random.Below(chains.size())];
      if (random.Below(2) == 0) cache.Store(chain, random.Below(61));
      for (uint64_t gone = random.Below(20); gone > 0; --gone) cache.RemoveSomeLeaf(random);
      batches.push_back(cache.Batch());
      if (wild && random.Below(10) == 0) batches.pop_back();
      if (wild && batches.size() > 1 && random.Below(10) == 0) std::swap(batches[0], batches[1]);
      if (wild && random.Below(10) == 0)
        batches.push_back(batches.empty() ? cache.Batch() : batches[0]);
      while (!batches.empty() && (!wild || random.Below(3) > 0)) {
        deliver(batches.front());
        batches.pop_front();
      }
      if (ask.has_value() && (!wild || random.Below(4) > 0)) {
        ask = feed.OnPage(cache.Page(*ask, 1 + random.Below(40)));
      }
    }
    for (int round = 0; round < 1000 && ask.has_value(); ++round) {
      ask = feed.OnPage(cache.Page(*ask, 10));
    }
    deliver(cache.Batch());
    ASSERT_TRUE(feed.whole());
    std::vector<uint32_t> held;
    for (const auto& chain : chains) {
      index.Match(chain, held);
      // Less where another chain holds the rest of an extent.
      EXPECT_LE(held[*feed.place()], cache.Held(chain));
      EXPECT_GE(held[*feed.place()] + kExtent, cache.Held(chain));
    }
    while (cache.RemoveSomeLeaf(random)) {
    }
    deliver(cache.Batch());
    Tidy(index);
    EXPECT_EQ(index.entries(), 0u) << "nothing stays behind";
  }
}

}  // namespace
}  // namespace baton::router
