// What this machine can do at most, as JSON rows: the yardstick beside every benchmark. Each figure
// is the best of several rounds, so that a busy moment does not lower the ceiling.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace baton {
namespace {

constexpr size_t kBufferBytes = size_t{128} << 20;  // far beyond any last-level cache share
constexpr int kRounds = 5;

double BestRate(double amount, const std::function<void()>& work) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, amount / took.count());
  }
  return best;
}

void OnThreads(unsigned count, const std::function<void(unsigned)>& work) {
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < count; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
}

uint64_t Sum(const uint64_t* words, size_t count) {
  uint64_t lanes[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

void Print(const char* name, double value, const char* unit) {
  std::printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\"}\n", name, value, unit);
}

void Run() {
  const unsigned num_threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<uint64_t> source(kBufferBytes / 8, 1);
  std::vector<uint64_t> target(kBufferBytes / 8, 2);
  Print("memcpy_1_thread",
        BestRate(kBufferBytes / 1e9,
                 [&] { std::memcpy(target.data(), source.data(), kBufferBytes); }),
        "GB/s");
  uint64_t used = 0;
  for (const unsigned threads : {1u, num_threads}) {
    const size_t share = source.size() / threads;
    std::vector<uint64_t> sums(threads * 8);  // a cache line each
    const double rate = BestRate(kBufferBytes / 1e9, [&] {
      OnThreads(threads, [&](unsigned i) { sums[i * 8] = Sum(source.data() + i * share, share); });
    });
    for (const uint64_t sum : sums) used += sum;
    Print(threads == 1 ? "memory_read_1_thread" : "memory_read_all_threads", rate, "GB/s");
  }
  if (used == 0) std::printf("\n");  // the sums are used, so they are computed
}

}  // namespace
}  // namespace baton

int main() { baton::Run(); }
