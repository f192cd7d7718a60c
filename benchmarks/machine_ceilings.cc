// What this machine can do at most, as JSON rows: the yardstick beside every benchmark. Each figure
// is the best of several rounds, so that a busy moment does not lower the ceiling.
#include <emmintrin.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/multiply_add.h"
#include "benchmarks/stream.h"

namespace baton::benchmarks {
namespace {

constexpr int kRounds = 15;
constexpr double kPatienceSeconds = 3;
constexpr uint64_t kIterations = 4'000'000;
constexpr int kBarrierRounds =
    500;  // short ones: a barrier needs every thread on a core of its own
constexpr uint32_t kBarriers = 1000;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Fewer rounds on a machine so busy that they take long.
double BestSeconds(int rounds, const std::function<void()>& work) {
  const auto begin = Clock::now();
  double best = 1e9;
  for (int round = 0; round < rounds && SecondsSince(begin) < kPatienceSeconds; ++round) {
    const auto start = Clock::now();
    work();
    best = std::min(best, SecondsSince(start));
  }
  return best;
}

void OnThreads(unsigned count, const std::function<void(unsigned)>& work) {
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < count; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
}

void Print(const std::string& name, double value, const char* unit) {
  std::printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\"}\n", name.c_str(), value, unit);
}

std::string WithThreads(const std::string& name, unsigned threads) {
  return name + (threads == 1 ? "_1_thread" : "_all_threads");
}

// Processor time of the calling thread, which another process on its core does not lengthen.
double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// What the threads do together, all of them at it at once.
double MacsPerSecond(const MultiplyAdd& one, unsigned threads) {
  std::vector<double> rates(threads);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    OnThreads(threads, [&](unsigned i) {
      const double start = ThreadSeconds();
      one.run(kIterations);
      rates[i] =
          static_cast<double>(one.macs_per_iteration * kIterations) / (ThreadSeconds() - start);
    });
    best = std::max(best, std::accumulate(rates.begin(), rates.end(), 0.0));
  }
  return best;
}

void PrintMultiplyAdds(unsigned threads) {
  for (const MultiplyAdd& one : MultiplyAdds()) {
    Print(WithThreads(one.name, threads), MacsPerSecond(one, threads) * 1e-9, "GMAC/s");
  }
}

void PrintMemory(const StreamBuffer& source, unsigned threads) {
  const size_t share = source.words() / threads;
  std::vector<uint64_t> sums(threads * 16);  // two cache lines each
  const double seconds = BestSeconds(kRounds, [&] {
    OnThreads(threads, [&](unsigned i) { sums[i * 16] = Sum(source.data() + i * share, share); });
  });
  uint64_t used = 0;
  for (const uint64_t sum : sums) used += sum;
  // The sums are looked at, so they are computed.
  if (used == 0) std::printf("\n");
  Print(WithThreads("memory_read", threads), static_cast<double>(source.bytes()) / seconds * 1e-9,
        "GB/s");
}

// The last to arrive lets the others go on; all of them spin.
class SpinBarrier {
 public:
  explicit SpinBarrier(uint32_t threads) : threads_(threads) {}
  void Wait() {
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      return;
    }
    while (generation_.load(std::memory_order_acquire) == generation) _mm_pause();
  }

 private:
  const uint32_t threads_;
  alignas(128) std::atomic<uint32_t> arrived_{0};
  alignas(128) std::atomic<uint32_t> generation_{0};
};

void PrintBarriers(unsigned threads) {
  SpinBarrier barrier(threads);
  const double seconds = BestSeconds(kBarrierRounds, [&] {
    OnThreads(threads, [&](unsigned) {
      for (uint32_t i = 0; i < kBarriers; ++i) barrier.Wait();
    });
  });
  Print("barrier", seconds / kBarriers * 1e9, "ns");
}

void Run() {
  const unsigned all = std::max(1u, std::thread::hardware_concurrency());
  const StreamBuffer source(1);
  StreamBuffer target(2);
  const double copy =
      BestSeconds(kRounds, [&] { std::memcpy(target.data(), source.data(), source.bytes()); });
  Print("memcpy_1_thread", static_cast<double>(source.bytes()) / copy * 1e-9, "GB/s");
  for (const unsigned threads : {1u, all}) {
    PrintMultiplyAdds(threads);
    PrintMemory(source, threads);
  }
  PrintBarriers(all);
}

}  // namespace
}  // namespace baton::benchmarks

int main() { baton::benchmarks::Run(); }
