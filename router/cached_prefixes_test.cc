#include "router/cached_prefixes.h"

#include <span>
#include <string>
#include <vector>

#include "common/metrics.h"
#include "gtest/gtest.h"

namespace baton::router {
namespace {

Digest Name(uint64_t chain, uint64_t block) {
  return {((chain << 20) + block + 1) * 0x9e3779b97f4a7c15u, block};
}

kv::CacheEventBatch Stored(uint64_t chain, uint32_t blocks, uint64_t sequence = 0) {
  kv::CacheEventBatch batch;
  batch.first_sequence = sequence;
  for (uint32_t i = 0; i < blocks; ++i) {
    batch.events.push_back({kv::CacheEvent::Action::kStored, i, Name(chain, i),
                            i == 0 ? Digest{} : Name(chain, i - 1)});
  }
  return batch;
}

class CachedPrefixesTest : public testing::Test {
 protected:
  CachedPrefixesTest() {
    for (WorkerView& worker : workers_) {
      worker.ready = true;
      worker.block_size = 16;
      views_.push_back(&worker);
    }
  }

  void Ready(size_t worker) {
    ASSERT_EQ(prefixes_.Started(worker), CacheFeed::Ask(0));
    ASSERT_EQ(prefixes_.OnPage(worker, {}), std::nullopt);
  }

  std::vector<uint32_t> Match(uint64_t chain, uint32_t blocks) {
    std::vector<Digest> names;
    for (uint32_t i = 0; i < blocks; ++i) names.push_back(Name(chain, i));
    const auto tokens = prefixes_.Match(
        [&](const WorkerView& worker) {
          asked_.push_back(worker.block_size);
          return std::span<const Digest>(names).first(names.size() * 16 / worker.block_size);
        },
        views_);
    return {tokens.begin(), tokens.end()};
  }

  double Metric(const std::string& name) {
    const std::string text = registry_.Scrape();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  MetricsRegistry registry_;
  CachedPrefixes prefixes_{ExtentIndex::kLeastBytes, registry_};
  std::vector<WorkerView> workers_{3};
  std::vector<const WorkerView*> views_;
  std::vector<uint32_t> asked_;
};

TEST_F(CachedPrefixesTest, SaysInTokensWhatEachWorkerHolds) {
  Ready(0);
  Ready(2);
  prefixes_.OnBatch(0, Stored(1, 20));
  prefixes_.OnBatch(2, Stored(1, 7));
  EXPECT_EQ(Match(1, 40), std::vector<uint32_t>({320, 0, 112}));
  EXPECT_EQ(Match(2, 40), std::vector<uint32_t>({0, 0, 0}));
}

TEST_F(CachedPrefixesTest, WorkersOfEveryBlockSizeAreAskedByTheirOwnNames) {
  workers_[1].block_size = 32;
  for (size_t i = 0; i < 3; ++i) Ready(i);
  for (size_t i = 0; i < 3; ++i) prefixes_.OnBatch(i, Stored(1, 10));
  EXPECT_EQ(Match(1, 40), std::vector<uint32_t>({160, 320, 160}));
  EXPECT_EQ(asked_, std::vector<uint32_t>({16, 32}));
}

TEST_F(CachedPrefixesTest, WorkersOfOtherNumericsAreAskedByTheirOwnNames) {
  workers_[2].numerics_id = Digest{1, 1};
  for (size_t i = 0; i < 3; ++i) Ready(i);
  prefixes_.OnBatch(0, Stored(1, 10));
  prefixes_.OnBatch(2, Stored(2, 10));
  std::vector<std::vector<Digest>> names(2);
  for (uint32_t i = 0; i < 10; ++i) {
    names[0].push_back(Name(1, i));
    names[1].push_back(Name(2, i));
  }
  const auto tokens = prefixes_.Match(
      [&](const WorkerView& worker) {
        return std::span<const Digest>(names[worker.numerics_id == Digest{1, 1} ? 1 : 0]);
      },
      views_);
  EXPECT_EQ(std::vector<uint32_t>(tokens.begin(), tokens.end()),
            std::vector<uint32_t>({160, 0, 160}));
}

TEST_F(CachedPrefixesTest, WithoutAnEntryNobodyIsAskedForNames) {
  Ready(0);
  EXPECT_EQ(Match(1, 40), std::vector<uint32_t>({0, 0, 0}));
  EXPECT_TRUE(asked_.empty());
}

TEST_F(CachedPrefixesTest, ALostWorkerAndOneThatRestartedHoldNothing) {
  Ready(0);
  Ready(1);
  prefixes_.OnBatch(0, Stored(1, 20));
  prefixes_.OnBatch(1, Stored(1, 20));
  prefixes_.Lost(0);
  EXPECT_EQ(Match(1, 20), std::vector<uint32_t>({0, 320, 0}));
  Ready(1);
  EXPECT_EQ(Match(1, 20), std::vector<uint32_t>({0, 0, 0}));
  Ready(0);
  prefixes_.OnBatch(0, Stored(1, 16));
  EXPECT_EQ(Match(1, 20), std::vector<uint32_t>({256, 0, 0}));
}

TEST_F(CachedPrefixesTest, MetricsFollow) {
  Ready(0);
  EXPECT_EQ(Metric("baton_router_cache_resyncs_total"), 1);
  prefixes_.OnBatch(0, Stored(1, 20));
  EXPECT_EQ(Metric("baton_router_cache_events_total"), 20);
  EXPECT_EQ(Metric("baton_router_cache_index_entries"), 2);
  EXPECT_EQ(Metric("baton_router_cache_index_bytes"),
            static_cast<double>(prefixes_.index().bytes()));
  EXPECT_EQ(prefixes_.OnBatch(0, Stored(1, 20, 100)), CacheFeed::Ask(0));
  EXPECT_EQ(Metric("baton_router_cache_gaps_total"), 1);
  EXPECT_EQ(Metric("baton_router_cache_resyncs_total"), 2);
  prefixes_.NotePlaced(320);
  EXPECT_EQ(Metric("baton_router_cache_hit_tokens_total"), 320);
}

TEST_F(CachedPrefixesTest, WhatTheCapDropsIsCounted) {
  Ready(0);
  uint64_t sequence = 0;
  for (uint64_t chain = 0; chain < 400; ++chain) {
    prefixes_.OnBatch(0, Stored(chain, 16 * 300, sequence));
    sequence += 16 * 300;
  }
  EXPECT_GT(Metric("baton_router_cache_index_dropped_total"), 10000);
  EXPECT_LE(Metric("baton_router_cache_index_bytes"), ExtentIndex::kLeastBytes);
}

}  // namespace
}  // namespace baton::router
