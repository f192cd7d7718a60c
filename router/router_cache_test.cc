// What workers say of their caches decides where prompts go.
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "kv/block_hash.h"
#include "kv/cache_event.h"
#include "proto/mapping/ids.h"
#include "router/cache_namespace.h"
#include "router/placement.h"
#include "router/router_core_fixture.h"

namespace baton::router {
namespace {

class RouterCacheTest : public RouterCoreTest {
 protected:
  void SetUp() override {
    for (const char* name : {"p0", "p1"}) AddWorker(name, true);
    for (const char* name : {"d0", "d1"}) AddWorker(name, false);
    for (auto& [name, worker] : workers_) worker->cache_page.emplace();
    Start();
  }

  FakeWorker& worker(const std::string& name) { return *workers_.at(name); }

  // The cache of the worker has stored the first blocks of the prompts that Ask sends.
  void Store(const std::string& name, uint32_t blocks, uint64_t first_sequence = 0) {
    const std::vector<TokenId> prompt(size_t{blocks} * 16, 5);
    Digest parent = kv::RootHash(CacheNamespace(spec_, worker(name).options().numerics_id));
    kv::CacheEventBatch batch;
    batch.first_sequence = first_sequence;
    for (const Digest& hash : kv::BlockHashes(parent, prompt, 16)) {
      batch.events.push_back({kv::CacheEvent::Action::kStored,
                              static_cast<uint32_t>(batch.events.size()), hash, parent});
      parent = hash;
    }
    worker(name).CacheEvents(batch);
    Run();
  }

  // Who got the latest prompt of 400 tokens.
  std::string Place() {
    Seen& seen = seen_.emplace_back();
    Ask(seen, 400);
    std::string taken;
    for (auto& [name, worker] : workers_) {
      if (worker->submits.size() > before_[name]) taken = name;
      before_[name] = worker->submits.size();
    }
    return taken;
  }

  std::deque<Seen> seen_;
  std::map<std::string, size_t> before_;
};

TEST_F(RouterCacheTest, EveryWorkerIsAskedWhatItHoldsWhenItsSessionOpens) {
  for (auto& [name, worker] : workers_) {
    EXPECT_EQ(worker->cache_pages_asked, std::vector<uint32_t>({0})) << name;
  }
  EXPECT_EQ(Metric("baton_router_cache_resyncs_total"), 4);
}

TEST_F(RouterCacheTest, APromptGoesToTheWorkersThatHoldItsBeginning) {
  Store("p1", 20);
  Store("d1", 20);
  EXPECT_EQ(Place(), "p1");
  ASSERT_EQ(worker("p1").submits.size(), 1u);
  EXPECT_EQ(proto::Get(worker("p1").submits[0].sinks(0).epoch()), worker("d1").options().epoch);
  EXPECT_EQ(Metric("baton_router_cache_hit_tokens_total"), 320);
  // 80 tokens are new there; at p0 it would be 400.
  EXPECT_EQ(Place(), "p1");
}

TEST_F(RouterCacheTest, AQueueOfNewTokensSendsItElsewhere) {
  Store("p1", 20);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Place(), "p1");
  EXPECT_EQ(Place(), "p0");
}

TEST_F(RouterCacheTest, ARequestThatBypassesCachesIsPlacedWithoutThem) {
  Store("p1", 20);
  spec_.bypass_cache = true;
  EXPECT_EQ(Place(), "p0");
}

TEST_F(RouterCacheTest, AnotherTenantsCacheIsNotLookedAt) {
  Store("p1", 20);
  spec_.tenant = "another";
  EXPECT_EQ(Place(), "p0");
}

// A router and its workers, of which some hold what one tenant left.
class Strangers : public RouterCacheTest {
 public:
  void TestBody() override {}

  // Where the prompts of `tenant` and `salt` go, source and first sink, one after the other as the
  // workers fill.
  std::vector<std::string> Places(const std::string& tenant, const std::string& salt, bool left) {
    SetUp();
    for (const char* name : {"p1", "d1"}) {
      if (left) Store(name, 20);
    }
    spec_.tenant = tenant;
    spec_.cache_salt = salt;
    std::vector<std::string> places;
    for (int i = 0; i < 12; ++i) {
      const std::string source = Place();
      const worker::v1::SubmitRequest& submit = worker(source).submits.back();
      places.push_back(source + " " + proto::Get(submit.sinks(0).epoch()).ToString());
    }
    return places;
  }
};

TEST(RouterStrangersTest, WhatATenantLeftDecidesNothingForAnother) {
  const auto places = [](const std::string& tenant, const std::string& salt, bool left) {
    return Strangers().Places(tenant, salt, left);
  };
  EXPECT_NE(places("", "", true), places("", "", false));
  EXPECT_EQ(places("b", "", true), places("b", "", false));
  EXPECT_EQ(places("", "s", true), places("", "s", false));
  EXPECT_EQ(places("b", "s", true), places("b", "s", false));
}

TEST_F(RouterCacheTest, AWorkerThatRestartsHoldsNothing) {
  Store("p1", 20);
  worker("p1").Restart(Epoch{77, 77});
  Run(seconds(5));
  EXPECT_EQ(worker("p1").cache_pages_asked.size(), 2u);
  EXPECT_EQ(Place(), "p0");
}

TEST_F(RouterCacheTest, MissingEventsAreAskedForAgain) {
  Store("p1", 20, 5);
  EXPECT_EQ(worker("p1").cache_pages_asked, std::vector<uint32_t>({0, 0}));
  EXPECT_EQ(Metric("baton_router_cache_gaps_total"), 1);
  EXPECT_EQ(Place(), "p0");
}

TEST_F(RouterCacheTest, ACachedPromptIsPredictedInTime) {
  for (auto& [name, worker] : workers_) worker->Load(0, 0, 100, 1000);
  Run();
  Store("p1", 20);
  Store("p0", 20);
  Place();
  // 400 tokens are ahead of it, for two workers, and it has 80 new ones; without a cache 400.
  Seen late;
  spec_.tenant = "another";
  Ask(late, 400, 8, milliseconds(500));
  EXPECT_EQ(late.status.code(), absl::StatusCode::kResourceExhausted);
  Seen in_time;
  spec_.tenant = "";
  Ask(in_time, 400, 8, milliseconds(500));
  EXPECT_EQ(in_time.ends, 0);
}

// Of two sinks one is idle and one has a batch and most of the prompt. What the rest weighs is
// known once a handoff has told it.
TEST_F(RouterCacheTest, WhatAHandoffShippedTellsWhatTransfersCost) {
  for (auto& [name, worker] : workers_) {
    worker::v1::WorkerEvent event;
    worker::v1::WorkerLoad& load = *event.mutable_load();
    load.add_free_blocks(100);
    load.set_running(name == "d1" ? 20 : 0);
    load.set_transfer_bytes_per_second(name[0] == 'p' ? 1e6 : 0);
    load.mutable_step_times()->set_step_seconds(0.001);
    load.mutable_step_times()->set_decode_row_seconds(0.001);
    worker->Send({event});
  }
  Run();
  Store("d1", 20);
  const auto sink = [this] {
    const FakeWorker& source = worker(Place());
    const Epoch epoch = proto::Get(source.submits.back().sinks(0).epoch());
    return epoch == worker("d1").options().epoch ? "d1" : "d0";
  };
  EXPECT_STREQ(sink(), "d0");
  FakeWorker& source = worker(worker("p0").submits.empty() ? "p1" : "p0");
  // All was found at the sink: nothing is learned from that.
  source.HandedOff(source.last_attempt(), milliseconds(1), 0, 0);
  Run();
  EXPECT_STREQ(sink(), "d0");
  source.HandedOff(source.last_attempt(), milliseconds(1), 400'000'000, 400);
  Run();
  EXPECT_STREQ(sink(), "d1");
}

class LeastWorkTest : public RouterCacheTest {
 protected:
  LeastWorkTest() { options_.placement = PlacementPolicy::kLeastWork; }
};

TEST_F(LeastWorkTest, CachesAreNotLookedAt) {
  Store("p1", 20);
  EXPECT_EQ(Place(), "p0");
  EXPECT_EQ(Metric("baton_router_cache_hit_tokens_total"), 0);
}

}  // namespace
}  // namespace baton::router
