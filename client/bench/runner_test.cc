#include "client/bench/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"

namespace baton::client {
namespace {

using Done = std::function<void(RequestRecord)>;

Plan PlanOf(const std::vector<double>& times) {
  Plan plan;
  for (const double at : times) plan.requests.push_back({at, 7, 3});
  return plan;
}

// Keeps what is started until somebody ends it.
class Held {
 public:
  RunnerOptions Options(std::optional<uint32_t> concurrency) {
    RunnerOptions options;
    options.concurrency = concurrency;
    options.start = [this](size_t index, RequestRecord record, Done done) {
      MutexLock lock(mutex_);
      indices_.push_back(index);
      held_.emplace_back(std::move(record), std::move(done));
      most_ = std::max(most_, held_.size());
      changed_.NotifyOne();
    };
    options.cancel_all = [this] {
      while (EndOne("CANCELLED")) {
      }
    };
    return options;
  }
  void WaitFor(size_t held) {
    MutexLock lock(mutex_);
    while (held_.size() < held) changed_.Wait(mutex_);
  }
  bool EndOne(const std::string& error = "") {
    std::pair<RequestRecord, Done> one;
    {
      MutexLock lock(mutex_);
      if (held_.empty()) return false;
      one = std::move(held_.front());
      held_.erase(held_.begin());
    }
    one.first.error = error;
    one.first.ended = SteadyNow();
    one.second(std::move(one.first));
    return true;
  }
  size_t most() {
    MutexLock lock(mutex_);
    return most_;
  }
  std::vector<size_t> indices() {
    MutexLock lock(mutex_);
    return indices_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t most_ = 0;
  std::vector<size_t> indices_;
  std::vector<std::pair<RequestRecord, Done>> held_;
};

TEST(RunnerTest, AClosedLoopNeverHasMoreThanItsConcurrency) {
  Held held;
  Runner runner(held.Options(3));
  const Plan plan = PlanOf(std::vector<double>(10, 0));
  auto run = std::async(std::launch::async, [&] { return runner.Run(plan); });
  for (int i = 0; i < 7; ++i) {
    held.WaitFor(3);
    held.EndOne();
  }
  held.WaitFor(3);
  while (held.EndOne()) {
  }
  const std::vector<RequestRecord> records = run.get();
  EXPECT_EQ(records.size(), 10u);
  EXPECT_EQ(held.most(), 3u);
  EXPECT_EQ(held.indices(), (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(records[0].prompt_tokens, 7u);
  EXPECT_EQ(records[0].wanted_tokens, 3u);
}

TEST(RunnerTest, AnOpenLoopStartsEachWhenItIsDueHoweverManyRun) {
  Held held;
  Runner runner(held.Options(std::nullopt));
  const Plan plan = PlanOf({0, 0.01, 0.02, 0.05});
  const Time began = SteadyNow();
  auto run = std::async(std::launch::async, [&] { return runner.Run(plan); });
  held.WaitFor(4);
  EXPECT_GE(ToSeconds(SteadyNow() - began), 0.05);
  while (held.EndOne()) {
  }
  const std::vector<RequestRecord> records = run.get();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(held.most(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(ToSeconds(records[i].scheduled - records[0].scheduled),
                     plan.requests[i].at_seconds);
  }
}

TEST(RunnerTest, AStartThatIsHeldUpLeavesTheScheduleAlone) {
  // The first start blocks past the second's time: the second counts from when it was due.
  Held held;
  RunnerOptions options = held.Options(std::nullopt);
  options.start = [](size_t index, RequestRecord record, const Done& done) {
    if (index == 0) std::this_thread::sleep_for(std::chrono::milliseconds(60));
    record.sent = record.ended = SteadyNow();
    done(std::move(record));
  };
  Runner runner(std::move(options));
  const std::vector<RequestRecord> records = runner.Run(PlanOf({0, 0.01}));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_DOUBLE_EQ(ToSeconds(records[1].scheduled - records[0].scheduled), 0.01);
  EXPECT_GE(ToSeconds(records[1].sent - records[1].scheduled), 0.05);
}

TEST(RunnerTest, AnInterruptCancelsWhatRunsAndStartsNothingMore) {
  Held held;
  Runner runner(held.Options(std::nullopt));
  const Plan plan = PlanOf({0, 0, 3600});
  auto run = std::async(std::launch::async, [&] { return runner.Run(plan); });
  held.WaitFor(2);
  runner.Interrupt();
  const std::vector<RequestRecord> records = run.get();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].error, "CANCELLED");
  EXPECT_TRUE(runner.interrupted());
}

TEST(RunnerTest, ProgressCountsWhatStartedEndedAndFailed) {
  Held held;
  RunnerOptions options = held.Options(2);
  std::promise<Progress> first;
  bool told = false;
  options.on_progress = [&](const Progress& progress) {
    if (progress.started == 3 && !std::exchange(told, true)) first.set_value(progress);
  };
  Runner runner(std::move(options));
  const Plan plan = PlanOf({0, 0, 0});
  auto run = std::async(std::launch::async, [&] { return runner.Run(plan); });
  held.WaitFor(2);
  held.EndOne("INTERNAL");
  held.WaitFor(2);
  const Progress progress = first.get_future().get();
  EXPECT_GE(progress.seconds, 1);
  EXPECT_EQ(progress.started, 3u);
  EXPECT_EQ(progress.ended, 1u);
  EXPECT_EQ(progress.failed, 1u);
  while (held.EndOne()) {
  }
  EXPECT_EQ(run.get().size(), 3u);
}

}  // namespace
}  // namespace baton::client
