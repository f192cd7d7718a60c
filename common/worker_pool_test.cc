#include "common/worker_pool.h"

#include <future>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "common/event_loop.h"
#include "gtest/gtest.h"

namespace baton {
namespace {

TEST(WorkerPoolTest, WorkRunsElsewhereAndItsResultComesBackAsAnEvent) {
  EventLoop loop({});
  loop.Start();
  WorkerPool pool({});
  std::promise<std::string> got;
  std::thread::id worked_on;
  const bool taken = Offload<std::string>(
      pool, loop,
      [&] {
        worked_on = std::this_thread::get_id();
        return std::string("tokens");
      },
      [&](std::string result) {
        EXPECT_TRUE(loop.OnLoopThread());
        got.set_value(std::move(result));
      });
  ASSERT_TRUE(taken);
  EXPECT_EQ(got.get_future().get(), "tokens");
  EXPECT_NE(worked_on, std::this_thread::get_id());
}

TEST(WorkerPoolTest, AFullQueueRefusesAndNeverRunsWhatItRefused) {
  EventLoop loop({});
  loop.Start();
  std::promise<void> started;
  std::promise<void> release;
  std::promise<void> done;
  WorkerPool::Options options;
  options.num_threads = 1;
  options.max_queued = 1;
  WorkerPool pool(options);
  ASSERT_TRUE(pool.TryRun(
      loop,
      [&] {
        started.set_value();
        release.get_future().wait();
      },
      [] {}));
  started.get_future().wait();
  ASSERT_TRUE(pool.TryRun(
      loop, [] {}, [&] { done.set_value(); }));
  EXPECT_FALSE(pool.TryRun(
      loop, [] { FAIL(); }, [] { FAIL(); }));
  release.set_value();
  done.get_future().wait();
}

TEST(WorkerPoolTest, DestructionDropsWhatWaits) {
  EventLoop loop({});
  loop.Start();
  std::promise<void> started;
  std::promise<void> release;
  bool waiting_ran = false;
  WorkerPool::Options options;
  options.max_queued = std::numeric_limits<size_t>::max();
  auto owner = std::make_unique<WorkerPool>(options);
  WorkerPool* const pool = owner.get();
  ASSERT_TRUE(pool->TryRun(
      loop,
      [&] {
        started.set_value();
        release.get_future().wait();
      },
      [] {}));
  ASSERT_TRUE(pool->TryRun(
      loop, [&] { waiting_ran = true; }, [] {}));
  started.get_future().wait();
  std::thread destroyer([&] { owner.reset(); });
  // The destructor has closed the door once TryRun refuses; only then may the first job end.
  while (pool->TryRun(
      loop, [] {}, [] {}))
    std::this_thread::yield();
  release.set_value();
  destroyer.join();
  EXPECT_FALSE(waiting_ran);
}

}  // namespace
}  // namespace baton
