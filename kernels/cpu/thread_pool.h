// The threads of a cpu backend: one job at a time, cut into chunks that threads claim.
#ifndef BATON_KERNELS_CPU_THREAD_POOL_H_
#define BATON_KERNELS_CPU_THREAD_POOL_H_

#include <algorithm>
#include <array>
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
// delays only what it has claimed. A job may end in more work (Then), which those threads help with
// that wait for its end.
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
    RunClaimed(chunks, Each<Body>{body}, 0);
  }

  // body(begin, end) over parts of [0, n), n at most 65,535, for work that is best done side by
  // side: a claim takes three quarters of a thread's share of what is left.
  template <typename Body>
  void RunNeighbours(uint32_t n, const Body& body) {
    RunClaimed(n, body, kNeighbours);
  }

  // Called within a chunk of Run(), at most once and when all other chunks have done what matters
  // to `body`, hence are claimed: that Run() also runs body(chunk) for every chunk below `chunks`
  // (at most 65,535). `body` lives until Run() returns.
  template <typename Body>
  void Then(uint32_t chunks, const Body& body) {
    if (!shared_ || chunks == 1) return Each<Body>{body}(0, chunks);
    Extend({&CallEach<Body>, &body}, chunks);
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
  template <typename Body>
  struct Each {
    const Body& body;
    void operator()(uint32_t begin, uint32_t end) const {
      for (uint32_t chunk = begin; chunk < end; ++chunk) body(chunk);
    }
  };
  // What a claim of chunks does.
  struct Task {
    void (*call)(const void* body, uint32_t begin, uint32_t end) = nullptr;
    const void* body = nullptr;
  };
  template <typename Body>
  static void Call(const void* body, uint32_t begin, uint32_t end) {
    (*static_cast<const Body*>(body))(begin, end);
  }
  template <typename Body>
  static void CallEach(const void* body, uint32_t begin, uint32_t end) {
    Each<Body>{*static_cast<const Body*>(body)}(begin, end);
  }

  template <typename Body>
  void RunClaimed(uint32_t chunks, const Body& body, uint64_t kind) {
    if (chunks == 0) return;
    if (chunks == 1 || workers_.empty()) return body(0, chunks);
    RunShared({&Call<Body>, &body}, kind | chunks);
  }
  void RunShared(const Task& task, uint64_t kind_and_chunks);
  void Extend(const Task& task, uint32_t chunks);
  void Publish(const Task& task, uint64_t kind_and_chunks);
  // How many chunks a thread that sees this takes.
  uint32_t ClaimOf(uint64_t ticket) const;
  // Runs chunks while any is left; returns how many.
  uint32_t Work();
  void WorkerLoop();
  bool HasWork() const;
  void Park();
  // Whether all chunks are done, when the caller has done so many.
  bool IsDone(uint32_t by_caller) const;
  // Until all is done or there is more to do.
  void AwaitDone(uint32_t by_caller);

  static constexpr uint64_t kNeighbours = uint64_t{1} << 32;

  uint64_t synchronisations_ = 0;
  // Generation (high 31 bits), whether claims are of neighbours (1), next chunk (16), number of
  // chunks (16). One word, so that a thread that comes late cannot claim a chunk of a job that has
  // ended.
  alignas(128) std::atomic<uint64_t> ticket_{0};
  // By generation: written before its ticket, read after a claim succeeded. Two, for a thread may
  // still be about to read what it has claimed of when a chunk publishes what its job ends in.
  std::array<Task, 2> tasks_;
  bool shared_ = false;                         // a job of several threads runs
  std::atomic<uint32_t> chunks_of_job_{0};      // grows before the chunk that adds to it is done
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
