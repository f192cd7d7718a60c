// Size of what goes to a router: everything of a turn in one message, unless that became too large
// to be received.
#include "worker/router_sessions.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/metrics.h"
#include "common/sim_executor.h"
#include "kv/cache_event_log.h"
#include "proto/mapping/cache_events.h"
#include "proto/mapping/ids.h"
#include "worker/worker_options.h"

namespace baton::worker {
namespace {

constexpr Epoch kRouter{9, 9};
constexpr size_t kMaxMessageBytes = size_t{16} << 20;  // of every receiver

class FakeHost : public RouterSessions::Host {
 public:
  v1::WorkerHello Hello() const override { return {}; }
  v1::WorkerLoad Load() override { return {}; }
  void OnAttach(const AttemptId& /*attempt*/) override {}
  void OnCancel(const AttemptId& /*attempt*/) override {}
  void OnRouterLost(const Epoch& /*router*/, v1::Cause /*cause*/) override {}
  kv::CacheEventBatch CacheEventsFrom(uint64_t sequence, size_t most) const override {
    return log.From(sequence, most);
  }
  kv::CacheSnapshotPage CachePage(uint32_t begin, uint32_t /*most*/) const override {
    kv::CacheSnapshotPage page;
    page.begin = begin;
    page.as_of = log.next_sequence();
    page.blocks.resize(2);
    page.next = begin == 0 ? 2 : 0;
    return page;
  }

  kv::CacheEventLog log{8};
};

// Keeps what is sent.
class FakeStream : public RouterStream {
 public:
  explicit FakeStream(std::vector<v1::SessionResponse>& sent) : sent_(sent) {}
  void Send(v1::SessionResponse message) override { sent_.push_back(std::move(message)); }
  void Close(absl::Status /*status*/) override {}

 private:
  std::vector<v1::SessionResponse>& sent_;
};

class RouterSessionsTest : public testing::Test {
 protected:
  RouterSessionsTest() {
    listener_ = sessions_.Accept(std::make_unique<FakeStream>(sent_));
    v1::SessionRequest hello;
    proto::Set(kRouter, *hello.mutable_hello()->mutable_router_epoch());
    hello.mutable_hello()->set_protocol_version(kProtocolVersion);
    listener_->OnMessage(hello);
    world_.RunFor(std::chrono::milliseconds(1));
    sent_.clear();
  }

  // Prompt log probabilities from `position` on, so many tokens with 20 alternatives each.
  void Emit(uint32_t position, int tokens) {
    v1::WorkerEvent event;
    event.mutable_prompt_logprobs()->set_position(position);
    for (int i = 0; i < tokens; ++i) {
      auto& one = *event.mutable_prompt_logprobs()->add_logprobs();
      one.set_logprob(-1);
      for (int top = 0; top < 20; ++top) {
        one.add_top_token_ids(40000 + top);
        one.add_top_logprobs(-2);
      }
    }
    sessions_.Emit(kRouter, std::move(event));
  }

  // Positions of the events of all messages, in order.
  std::vector<uint32_t> Positions() const {
    std::vector<uint32_t> positions;
    for (const v1::SessionResponse& message : sent_) {
      for (const v1::WorkerEvent& event : message.events()) {
        if (event.has_prompt_logprobs()) {
          positions.push_back(event.prompt_logprobs().position());
        }
      }
    }
    return positions;
  }

  void AskForPage(uint32_t page) {
    v1::SessionRequest request;
    request.mutable_cache_snapshot_request()->set_page(page);
    listener_->OnMessage(request);
  }
  void Change(int times) {
    for (int i = 0; i < times; ++i) host_.log.Add({});
    sessions_.NoteCacheEvents();
  }
  // Sequences [first, next) of the batches, and pages, as they came.
  std::string Heard() {
    std::string heard;
    for (const v1::SessionResponse& message : std::exchange(sent_, {})) {
      for (const v1::WorkerEvent& event : message.events()) {
        if (event.has_cache_events()) {
          const kv::CacheEventBatch batch = proto::Get(event.cache_events());
          heard += " " + std::to_string(batch.first_sequence) + "-" +
                   std::to_string(batch.next_sequence());
        }
        if (event.has_cache_snapshot()) {
          const kv::CacheSnapshotPage page = proto::Get(event.cache_snapshot());
          heard += " page " + std::to_string(page.begin) + " of " + std::to_string(page.as_of) +
                   " then " + std::to_string(page.next);
        }
      }
    }
    return heard;
  }

  SimWorld world_;
  SimExecutor executor_{world_, "worker"};
  RouterStream::Listener* listener_ = nullptr;
  MetricsRegistry metrics_;
  FakeHost host_;
  std::vector<v1::SessionResponse> sent_;
  RouterSessions sessions_{RouterSessions::Options(), executor_, metrics_, host_};
};

TEST_F(RouterSessionsTest, WhatIsSmallTravelsInOneMessageAtTheEndOfTheTurn) {
  for (uint32_t position = 0; position < 20; ++position) Emit(position, 1000);
  EXPECT_TRUE(sent_.empty());
  sessions_.Flush();
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_EQ(Positions().size(), 20u);
}

TEST_F(RouterSessionsTest, NoMessageOfManyPromptsLogProbabilitiesIsLargerThanAReceiverTakes) {
  // Each is the most that one request may ask for.
  std::vector<uint32_t> expected;
  for (uint32_t position = 0; position < 8; ++position) {
    Emit(position, 500'000 / 21);
    expected.push_back(position);
  }
  EXPECT_GE(sent_.size(), 3u);  // early
  sessions_.Flush();
  size_t total = 0;
  for (const v1::SessionResponse& message : sent_) {
    EXPECT_LT(message.ByteSizeLong(), kMaxMessageBytes);
    total += message.ByteSizeLong();
  }
  EXPECT_GT(total, kMaxMessageBytes);
  EXPECT_EQ(Positions(), expected);
}

TEST_F(RouterSessionsTest, CacheEventsComeInBatchesToWhoeverAskedForAPage) {
  using std::chrono::milliseconds;
  Change(2);
  world_.RunFor(milliseconds(60));
  EXPECT_EQ(Heard(), "");
  AskForPage(0);
  AskForPage(2);
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(Heard(), " page 0 of 3 then 2 page 2 of 3 then 0");
  Change(2);
  world_.RunFor(milliseconds(40));
  EXPECT_EQ(Heard(), "");
  Change(1);
  world_.RunFor(milliseconds(20));
  EXPECT_EQ(Heard(), " 3-6");
  world_.RunFor(milliseconds(200));
  EXPECT_EQ(Heard(), "");
  Change(12);  // more than are kept
  world_.RunFor(milliseconds(60));
  EXPECT_EQ(Heard(), " 10-18");
}

}  // namespace
}  // namespace baton::worker
