// Workers that are listed and unlisted while the router runs.
#include <string>
#include <vector>

#include "router/router_core_fixture.h"

namespace baton::router {
namespace {

class ListTest : public RouterCoreTest {
 protected:
  void SetUp() override {
    options_.on_workers = [this](const WorkersState& state) { state_ = state; };
    AddWorker("a", false);
    AddWorker("b", false);
    options_.workers.pop_back();  // "b" exists and is not listed yet
    Start();
  }
  FakeWorker& worker(const std::string& name) { return *workers_.at(name); }

  WorkersState state_;
};

TEST_F(ListTest, AWorkerThatIsListedLaterServes) {
  EXPECT_TRUE(state_.all_ready);
  core_->AddWorker({"b", false});
  EXPECT_FALSE(state_.all_ready);
  core_->AddWorker({"b", false});
  Run();
  EXPECT_TRUE(state_.all_ready);
  EXPECT_EQ(state_.ready, 2u);
  EXPECT_EQ(worker("b").sessions_opened, 1);
  worker("a").Crash();
  Run();
  Seen seen;
  Ask(seen);
  EXPECT_EQ(worker("b").submits.size(), 1u);
}

TEST_F(ListTest, AWorkerThatIsNoLongerListedServesUntilItsSessionBreaks) {
  core_->RemoveWorker("a");
  Run();
  Seen seen;
  Ask(seen);
  ASSERT_EQ(worker("a").submits.size(), 1u);
  EXPECT_TRUE(state_.can_serve);
  worker("a").Crash();
  Run(seconds(60));
  EXPECT_EQ(seen.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(worker("a").sessions_opened, 1);
  EXPECT_FALSE(state_.can_serve);
  EXPECT_TRUE(state_.all_ready);
}

TEST_F(ListTest, AWorkerThatIsListedAgainIsDialledAgain) {
  core_->RemoveWorker("a");
  worker("a").Crash();
  Run(seconds(60));
  core_->AddWorker({"a", false});
  Run();
  EXPECT_EQ(worker("a").sessions_opened, 2);
  EXPECT_TRUE(state_.can_serve);
}

TEST_F(ListTest, AWorkerThatNeverAnsweredIsNotDialledOnceItIsNotListed) {
  worker("b").answers_hello = false;
  core_->AddWorker({"b", false});
  Run();
  core_->RemoveWorker("b");
  const int opened = worker("b").sessions_opened;
  Run(seconds(60));
  EXPECT_EQ(worker("b").sessions_opened, opened);
  EXPECT_FALSE(worker("b").connected());
}

TEST_F(ListTest, WorkersThatComeAndGoTakeEachOthersPlaces) {
  Seen seen;
  Ask(seen);  // runs on "a" throughout
  for (int i = 0; i < 50; ++i) {
    const std::string name = "pod-" + std::to_string(i);
    AddWorker(name, false);
    core_->AddWorker({name, false});
    Run();
    EXPECT_EQ(state_.ready, 2u);
    core_->RemoveWorker(name);
    worker(name).Crash();
    Run(seconds(1));
    EXPECT_EQ(state_.ready, 1u);
    EXPECT_TRUE(state_.all_ready);
  }
  EXPECT_EQ(core_->worker_places(), 2u);
  worker("a").Token(worker("a").last_attempt(), 20, 100, true);
  Run();
  EXPECT_EQ(seen.tokens, std::vector<TokenId>({100}));
  EXPECT_TRUE(seen.status.ok()) << seen.status;
}

}  // namespace
}  // namespace baton::router
