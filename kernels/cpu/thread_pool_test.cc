#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace baton::kernels::cpu {
namespace {

TEST(ThreadPoolTest, EveryChunkRunsExactlyOnce) {
  for (uint32_t threads : {1u, 2u, 4u}) {
    ThreadPool pool(threads);
    for (uint32_t chunks = 0; chunks < 200; ++chunks) {
      std::vector<std::atomic<int>> runs(chunks);
      pool.Run(chunks, [&](uint32_t chunk) { ++runs[chunk]; });
      pool.RunNeighbours(chunks, [&](uint32_t begin, uint32_t end) {
        EXPECT_LT(begin, end);
        for (uint32_t chunk = begin; chunk < end; ++chunk) ++runs[chunk];
      });
      for (const auto& count : runs) ASSERT_EQ(count, 2);
    }
  }
}

// A thread that finds much left takes much at once; at the end of a job claims are small.
TEST(ThreadPoolTest, ClaimsOfNeighboursShrink) {
  ThreadPool pool(2);
  std::vector<uint32_t> length(64);
  pool.RunNeighbours(64, [&](uint32_t begin, uint32_t end) { length[begin] = end - begin; });
  EXPECT_EQ(length[0], 24u);
  EXPECT_EQ(length[24], 15u);
  EXPECT_EQ(length[62], 1u);
  EXPECT_EQ(length[63], 1u);
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

// The chunk that ends last finds that out by a counter, as the epilogues of products do.
TEST(ThreadPoolTest, WhatAJobEndsInRunsOnceAndSeesItsChunks) {
  for (uint32_t threads : {1u, 2u, 4u}) {
    ThreadPool pool(threads);
    for (uint32_t round = 0; round < 2000; ++round) {
      const uint32_t chunks = 1 + round % 9;
      std::vector<uint32_t> first(chunks);
      std::vector<std::atomic<uint32_t>> then(round % 7);
      std::atomic<uint32_t> left{chunks};
      const auto end = [&](uint32_t chunk) {
        for (uint32_t value : first) then[chunk] += value;
      };
      pool.Run(chunks, [&](uint32_t chunk) {
        first[chunk] = chunk + 1;
        if (--left == 0) pool.Then(round % 7, end);
      });
      for (const auto& sum : then) ASSERT_EQ(sum, chunks * (chunks + 1) / 2);
    }
  }
}

// Rows of an earlier band are still multiplied when the norm of the last one begins. TSan sees here
// whether their thread could have run the one for the other.
TEST(ThreadPoolTest, AChunkThatTheEndOfAJobDoesNotNeedMayStillRun) {
  for (uint32_t threads : {2u, 4u}) {
    ThreadPool pool(threads);
    for (uint32_t round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> runs(8);
      std::vector<std::atomic<int>> then(5);
      std::atomic<uint32_t> left{7};
      std::atomic<bool> ended{false};
      const auto end = [&](uint32_t chunk) {
        ++then[chunk];
        ended = true;
        ended.notify_all();
      };
      pool.Run(8, [&](uint32_t chunk) {
        ++runs[chunk];
        if (chunk == 0) return ended.wait(false);
        if (--left == 0) pool.Then(5, end);
      });
      for (const auto& count : runs) ASSERT_EQ(count, 1);
      for (const auto& count : then) ASSERT_EQ(count, 1);
    }
  }
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
