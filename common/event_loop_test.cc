#include "common/event_loop.h"

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace baton {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(EventLoopTest, RunsTasksInTheOrderPosted) {
  EventLoop loop({});
  std::vector<int> ran;
  for (int i = 0; i < 100; ++i) loop.Post([&ran, i] { ran.push_back(i); });
  EXPECT_TRUE(ran.empty());  // never inside Post
  loop.Start();
  loop.Stop();
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

TEST(EventLoopTest, TasksOfManyThreadsAllRunOnTheLoopThread) {
  EventLoop loop({});
  loop.Start();
  int count = 0;  // the loop's thread only
  std::atomic<bool> elsewhere = false;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        loop.Post([&] {
          ++count;
          if (!loop.OnLoopThread()) elsewhere = true;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop.Stop();
  EXPECT_EQ(count, 4000);
  EXPECT_FALSE(elsewhere);
}

TEST(EventLoopTest, TimersRunByTimeAndTiesByOrder) {
  EventLoop loop({});
  std::vector<int> ran;
  std::promise<void> last;
  const Time start = loop.Now();
  std::vector<TimerHandle> handles;
  handles.push_back(loop.PostAt(start + milliseconds(4), [&] { last.set_value(); }));
  handles.push_back(loop.PostAt(start + milliseconds(3), [&] { ran.push_back(3); }));
  handles.push_back(loop.PostAt(start + milliseconds(1), [&] { ran.push_back(1); }));
  handles.push_back(loop.PostAt(start + milliseconds(1), [&] { ran.push_back(2); }));
  loop.Start();
  last.get_future().wait();
  EXPECT_GE(loop.Now(), start + milliseconds(4));
  loop.Stop();
  EXPECT_EQ(ran, (std::vector<int>{1, 2, 3}));
}

TEST(EventLoopTest, ADestroyedHandleCancels) {
  EventLoop loop({});
  bool cancelled_ran = false;
  std::promise<void> later;
  const Time start = loop.Now();
  {
    const TimerHandle dropped = loop.PostAt(start, [&] { cancelled_ran = true; });
  }
  const TimerHandle kept = loop.PostAt(start + milliseconds(1), [&] { later.set_value(); });
  loop.Start();
  later.get_future().wait();
  loop.Stop();
  EXPECT_FALSE(cancelled_ran);
}

TEST(EventLoopTest, ATimerMayDestroyItsOwnHandle) {
  EventLoop loop({});
  auto handle = std::make_unique<TimerHandle>();
  std::promise<int> ran;
  const auto token = std::make_shared<int>(42);
  *handle = loop.PostAt(loop.Now(), [&, token] {
    handle.reset();
    ran.set_value(*token);
  });
  loop.Start();
  EXPECT_EQ(ran.get_future().get(), 42);
}

TEST(EventLoopTest, ManyCancelledTimersDoNotPileUp) {
  EventLoop loop({});
  const auto token = std::make_shared<int>(0);
  for (int i = 0; i < 100'000; ++i) {
    TimerHandle handle = loop.PostAt(loop.Now() + hours(1), [token] {});
    handle.Cancel();
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(EventLoopTest, StopDrainsWhatTasksPostAndDropsTimersAndLaterPosts) {
  EventLoop loop({});
  const auto token = std::make_shared<int>(0);
  int ran = 0;
  TimerHandle handle;
  loop.Post([&, token] {
    handle = loop.PostAfter(hours(1), [&, token] { ran += 100; });
    loop.Post([&, token] {
      ++ran;
      loop.Post([&] { ++ran; });
    });
  });
  loop.Start();
  loop.Stop();
  loop.Post([&, token] { ran += 100; });
  EXPECT_FALSE(loop.TryPost([&, token] { ran += 100; }));
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(token.use_count(), 1);  // nothing captured is kept
}

TEST(EventLoopTest, AFullQueueRefusesOnlyTryPost) {
  EventLoop::Options options;
  options.max_queued = 2;
  EventLoop loop(options);
  int ran = 0;
  EXPECT_TRUE(loop.TryPost([&] { ++ran; }));
  EXPECT_TRUE(loop.TryPost([&] { ++ran; }));
  EXPECT_FALSE(loop.TryPost([&] { ran += 100; }));
  loop.Post([&] { ++ran; });
  EXPECT_EQ(loop.queued(), 3u);
  loop.Start();
  loop.Stop();
  EXPECT_EQ(ran, 3);
}

TEST(EventLoopTest, CountsTurnsThatTakeTooLong) {
  int slow_turns = 0;
  EventLoop::Options options;
  options.turn_limit = milliseconds(1);
  options.on_slow_turn = [&](Duration took) {
    EXPECT_GT(took, milliseconds(1));
    ++slow_turns;
  };
  EventLoop loop(options);
  loop.Post([&] {
    const Time end = loop.Now() + milliseconds(3);
    while (loop.Now() < end) {
    }
  });
  loop.Start();
  loop.Stop();
  EXPECT_EQ(slow_turns, 1);
}

}  // namespace
}  // namespace baton
