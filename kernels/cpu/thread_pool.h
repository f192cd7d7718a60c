// The threads of a cpu backend: one job at a time, cut into chunks that threads claim.
#ifndef BATON_KERNELS_CPU_THREAD_POOL_H_
#define BATON_KERNELS_CPU_THREAD_POOL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace baton::kernels::cpu {

// How long a thread spins before it parks. A short wait says that spinning pays, also when it was
// parked through. When several in a row were long, the machine is idle or somebody else wants its
// cores, and spinning would only keep the one from its core that is waited for.
class SpinLimit {
 public:
  // Pauses, of some 25 nanoseconds each.
  uint32_t pauses() const { return long_in_a_row_ < kPatience ? kLong : kShort; }
  void Ended(bool was_long) { long_in_a_row_ = was_long ? long_in_a_row_ + 1 : 0; }

  static constexpr uint32_t kLong = 2000;
  static constexpr uint32_t kShort = 100;
  // One wait is long after every step of an engine that has nothing to do.
  static constexpr uint32_t kPatience = 4;

 private:
  uint32_t long_in_a_row_ = 0;
};

// Run() and ForRange() are called by one thread, which works along; chunks run on any thread in any
// order. Idle threads spin for some microseconds, then park: another process may need the core.
// Every chunk is claimed when a thread gets to it, so a thread that the system took off its core
// delays only the chunk it is in.
class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts none.
  explicit ThreadPool(uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  // How often Run() made threads wait for one another. For the calling thread.
  uint64_t synchronisations() const { return synchronisations_; }

  // body(chunk) for every chunk below `chunks` (at most 65,535); returns when all are done.
  template <typename Body>
  void Run(uint32_t chunks, const Body& body) {
    if (chunks == 1 || workers_.empty()) {
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) body(chunk);
      return;
    }
    RunShared(chunks, &Call<Body>, &body);
  }

  // body(begin, end) over parts of [0, n), about eight per thread, each of at least `grain`.
  template <typename Body>
  void ForRange(uint32_t n, uint32_t grain, const Body& body) {
    const uint32_t chunks = std::clamp(n / grain, 1u, threads() * 8);
    Run(chunks, [&](uint32_t chunk) {
      const auto begin = static_cast<uint32_t>(uint64_t{n} * chunk / chunks);
      const auto end = static_cast<uint32_t>(uint64_t{n} * (chunk + 1) / chunks);
      body(begin, end);
    });
  }

 private:
  using CallBody = void (*)(const void* body, uint32_t chunk);
  template <typename Body>
  static void Call(const void* body, uint32_t chunk) {
    (*static_cast<const Body*>(body))(chunk);
  }

  void RunShared(uint32_t chunks, CallBody call, const void* body);
  // Runs chunks while any is left; returns how many.
  uint32_t Work();
  void WorkerLoop();
  bool HasWork() const;
  void Park();
  void AwaitDone(uint32_t wanted);

  uint64_t synchronisations_ = 0;
  // Generation (high 32 bits), next chunk (16), number of chunks (16). One word, so that a thread
  // that comes late cannot claim a chunk of a job that has ended.
  alignas(128) std::atomic<uint64_t> ticket_{0};
  // Written before the ticket of their job, read after a claim succeeded.
  CallBody call_ = nullptr;
  const void* body_ = nullptr;
  alignas(128) std::atomic<uint32_t> done_{0};  // chunks finished by workers
  std::atomic<bool> caller_parked_{false};
  SpinLimit caller_limit_;
  alignas(128) std::atomic<uint32_t> wake_{0};  // changes when parked workers must look
  std::atomic<uint32_t> parked_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace baton::kernels::cpu

#endif  // BATON_KERNELS_CPU_THREAD_POOL_H_
