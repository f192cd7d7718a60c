#include "router/worker_discovery.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/sim_executor.h"

namespace baton::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Hosts = std::vector<std::string>;

// Answers when the test says so.
class HeldResolver : public Resolver {
 public:
  void Resolve(const std::string& host, Done done) override {
    asked.push_back(host);
    held.emplace_back(std::move(done));
  }
  std::vector<std::string> asked;
  std::deque<Done> held;
};

class WorkerDiscoveryTest : public testing::Test, public WorkerDiscovery::Observer {
 protected:
  void Start(std::vector<WorkerAddress> names) {
    WorkerDiscovery::Options options;
    options.names = std::move(names);
    discovery_ = std::make_unique<WorkerDiscovery>(options, resolver_, node_, *this, log_);
    discovery_->Start();
  }
  // To the oldest question.
  void Answer(absl::StatusOr<Hosts> hosts) {
    ASSERT_FALSE(resolver_.held.empty());
    const Resolver::Done done = std::move(resolver_.held.front());
    resolver_.held.pop_front();
    node_.Post([done, hosts = std::move(hosts)] { done(hosts); });
    world_.RunFor(milliseconds(1));
  }
  std::string Seen() { return std::exchange(seen_, ""); }

  void OnWorkerFound(const WorkerAddress& worker) override {
    seen_ += "+" + worker.address + (worker.prefill ? "(p) " : " ");
  }
  void OnWorkerGone(const std::string& address) override { seen_ += "-" + address + " "; }

  SimWorld world_;
  SimExecutor node_{world_, "router", seconds(1000)};
  HeldResolver resolver_;
  Logger log_ = Logger::Silent();
  std::unique_ptr<WorkerDiscovery> discovery_;
  std::string seen_;
};

TEST_F(WorkerDiscoveryTest, EveryAddressIsAWorkerAtTheNamesPort) {
  Start({{"prefill.ns:7000", true}, {"decode.ns:7001", false}});
  EXPECT_EQ(resolver_.asked, (Hosts{"prefill.ns", "decode.ns"}));
  EXPECT_FALSE(discovery_->complete());
  Answer(Hosts{"10.0.0.2", "10.0.0.1", "10.0.0.2"});
  EXPECT_EQ(Seen(), "+10.0.0.1:7000(p) +10.0.0.2:7000(p) ");
  EXPECT_FALSE(discovery_->complete());
  Answer(Hosts{"fd00::1"});
  EXPECT_EQ(Seen(), "+[fd00::1]:7001 ");
  EXPECT_TRUE(discovery_->complete());
}

TEST_F(WorkerDiscoveryTest, WorkersAppearAndDisappearFromOneAnswerToTheNext) {
  Start({{"w:1", false}});
  Answer(Hosts{"10.0.0.1", "10.0.0.2"});
  Seen();
  world_.RunFor(seconds(4));
  EXPECT_TRUE(resolver_.held.empty());
  world_.RunFor(seconds(1));
  Answer(Hosts{"10.0.0.2", "10.0.0.3"});
  EXPECT_EQ(Seen(), "+10.0.0.3:1 -10.0.0.1:1 ");
  world_.RunFor(seconds(6));
  Answer(Hosts{"10.0.0.3", "10.0.0.2"});
  EXPECT_EQ(Seen(), "");
}

TEST_F(WorkerDiscoveryTest, ANameThatDoesNotResolveIsAskedAgainAndTakesNobodyAway) {
  Start({{"w:1", false}});
  Answer(absl::UnavailableError("no such name"));
  EXPECT_EQ(Seen(), "");
  EXPECT_FALSE(discovery_->complete());
  world_.RunFor(seconds(6));
  Answer(Hosts{"10.0.0.1"});
  EXPECT_EQ(Seen(), "+10.0.0.1:1 ");
  world_.RunFor(seconds(6));
  Answer(absl::UnavailableError("the name server is down"));
  world_.RunFor(seconds(6));
  Answer(Hosts{});
  EXPECT_EQ(Seen(), "");
  EXPECT_TRUE(discovery_->complete());
  world_.RunFor(seconds(6));
  Answer(Hosts{"10.0.0.2"});
  EXPECT_EQ(Seen(), "+10.0.0.2:1 -10.0.0.1:1 ");
}

TEST_F(WorkerDiscoveryTest, AnAddressOfTwoNamesGoesWithTheLast) {
  Start({{"a:1", false}, {"b:1", false}});
  Answer(Hosts{"10.0.0.1"});
  Answer(Hosts{"10.0.0.1"});
  EXPECT_EQ(Seen(), "+10.0.0.1:1 +10.0.0.1:1 ");
  world_.RunFor(seconds(6));
  Answer(Hosts{"10.0.0.2"});
  EXPECT_EQ(Seen(), "+10.0.0.2:1 ");
  Answer(Hosts{"10.0.0.2"});
  EXPECT_EQ(Seen(), "+10.0.0.2:1 -10.0.0.1:1 ");
}

TEST_F(WorkerDiscoveryTest, RefreshAsksSoonButNotAtOnceAndOneQuestionAtATime) {
  Start({{"w:1", false}});
  discovery_->Refresh();
  world_.RunFor(seconds(1));
  EXPECT_EQ(resolver_.held.size(), 1u);
  Answer(Hosts{"10.0.0.1"});
  world_.RunFor(milliseconds(1));
  EXPECT_EQ(resolver_.held.size(), 1u);  // what was asked for meanwhile
  Answer(Hosts{"10.0.0.1"});
  for (int i = 0; i < 100; ++i) discovery_->Refresh();
  world_.RunFor(milliseconds(200));
  EXPECT_TRUE(resolver_.held.empty());
  world_.RunFor(milliseconds(100));
  EXPECT_EQ(resolver_.held.size(), 1u);
}

TEST_F(WorkerDiscoveryTest, AnAnswerAfterItsEndIsNobodys) {
  Start({{"w:1", false}});
  discovery_->Stop();
  discovery_.reset();
  Answer(Hosts{"10.0.0.1"});
  EXPECT_EQ(Seen(), "");
}

TEST(IsNumericTest, TellsNamesFromAddresses) {
  for (const char* numeric : {"127.0.0.1:1", "[::1]:1"}) EXPECT_TRUE(IsNumeric(numeric)) << numeric;
  for (const char* name : {"localhost:1", "w.ns.svc:1", "1.2.3:1", "host"}) {
    EXPECT_FALSE(IsNumeric(name)) << name;
  }
}

}  // namespace
}  // namespace baton::router
