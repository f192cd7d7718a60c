#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::kernels::cpu {
namespace {

TEST(ThreadPoolTest, EveryChunkRunsExactlyOnce) {
  for (uint32_t threads : {1u, 2u, 4u}) {
    ThreadPool pool(threads);
    for (uint32_t chunks = 0; chunks < 200; ++chunks) {
      std::vector<std::atomic<int>> runs(chunks);
      pool.Run(chunks, [&](uint32_t chunk) { ++runs[chunk]; });
      for (const auto& count : runs) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPoolTest, RangesCoverAllAndAreNoSmallerThanTheGrain) {
  ThreadPool pool(3);
  for (uint32_t n : {1u, 5u, 64u, 1000u}) {
    std::vector<std::atomic<int>> runs(n);
    pool.ForRange(n, 5, [&](uint32_t begin, uint32_t end) {
      EXPECT_GE(end - begin, std::min(n, 5u));
      for (uint32_t i = begin; i < end; ++i) ++runs[i];
    });
    for (const auto& count : runs) ASSERT_EQ(count, 1);
  }
}

TEST(ThreadPoolTest, WorkWrittenByOneJobIsSeenByTheNext) {
  ThreadPool pool(4);
  std::vector<uint64_t> sum(64);
  for (uint64_t round = 0; round < 3000; ++round) {
    pool.Run(64, [&](uint32_t chunk) { sum[chunk] += round; });
  }
  for (uint64_t value : sum) EXPECT_EQ(value, uint64_t{3000} * 2999 / 2);
}

TEST(SpinLimitTest, ShortensAfterSeveralLongWaitsInARow) {
  SpinLimit limit;
  for (uint32_t i = 0; i < SpinLimit::kPatience; ++i) {
    EXPECT_EQ(limit.pauses(), SpinLimit::kLong);
    limit.Ended(true);
  }
  EXPECT_EQ(limit.pauses(), SpinLimit::kShort);
  limit.Ended(true);
  EXPECT_EQ(limit.pauses(), SpinLimit::kShort);
  limit.Ended(false);
  EXPECT_EQ(limit.pauses(), SpinLimit::kLong);
}

// An engine that idles between steps: the first wait of a step must not be the short one.
TEST(SpinLimitTest, OneLongWaitAmongManyChangesNothing) {
  SpinLimit limit;
  for (uint32_t step = 0; step < 10; ++step) {
    limit.Ended(true);
    EXPECT_EQ(limit.pauses(), SpinLimit::kLong);
    for (uint32_t wait = 0; wait < 150; ++wait) limit.Ended(false);
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
