#include "kernels/cpu/thread_pool.h"

#include <pthread.h>

#include <chrono>

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t NextOf(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 16) & 0xffff; }
uint32_t LimitOf(uint64_t ticket) { return static_cast<uint32_t>(ticket) & 0xffff; }
constexpr uint32_t kGenerationShift = 33;
uint64_t GenerationOf(uint64_t ticket) { return ticket >> kGenerationShift; }
constexpr uint64_t kOneChunk = uint64_t{1} << 16;

// A wait for longer than the long spin lasts.
constexpr auto kLongWait = std::chrono::microseconds(50);

// Spins until `done` says so, else parks.
template <typename Done, typename Park>
void Wait(SpinLimit& limit, const Done& done, const Park& park) {
  for (uint32_t spin = 0; spin < limit.pauses(); ++spin) {
    if (done()) return limit.Ended(false);
    Pause();
  }
  const auto begin = std::chrono::steady_clock::now();
  park();
  limit.Ended(std::chrono::steady_clock::now() - begin > kLongWait);
}

}  // namespace

ThreadPool::ThreadPool(uint32_t threads) {
  BATON_CHECK(threads >= 1);
  for (uint32_t i = 1; i < threads; ++i) {
    workers_.emplace_back([this] { WorkerLoop(); });
    pthread_setname_np(workers_.back().native_handle(), "cpu-pool");
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++wake_;
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunShared(const Task& task, uint64_t kind_and_chunks) {
  ++synchronisations_;
  shared_ = true;
  done_.store(0, std::memory_order_relaxed);
  chunks_of_job_.store(LimitOf(kind_and_chunks), std::memory_order_relaxed);
  Publish(task, kind_and_chunks);
  uint32_t count = 0;
  do {
    count += Work();
    AwaitDone(count);
  } while (!IsDone(count));
  shared_ = false;
}

void ThreadPool::Extend(const Task& task, uint32_t chunks) {
  BATON_CHECK(!HasWork() && chunks <= 0xffff);
  if (chunks == 0) return;
  chunks_of_job_.fetch_add(chunks, std::memory_order_relaxed);
  Publish(task, chunks);
}

void ThreadPool::Publish(const Task& task, uint64_t kind_and_chunks) {
  const uint64_t generation = GenerationOf(ticket_.load(std::memory_order_relaxed)) + 1;
  tasks_[generation % 2] = task;
  ticket_.store(generation << kGenerationShift | kind_and_chunks);
  if (parked_.load() > 0) {
    ++wake_;
    wake_.notify_all();
  }
}

uint32_t ThreadPool::ClaimOf(uint64_t ticket) const {
  if ((ticket & kNeighbours) == 0) return 1;
  return std::max(1u, 3 * (LimitOf(ticket) - NextOf(ticket)) / (4 * threads()));
}

uint32_t ThreadPool::Work() {
  uint32_t count = 0;
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (NextOf(ticket) < LimitOf(ticket)) {
    const uint32_t claim = ClaimOf(ticket);
    if (!ticket_.compare_exchange_weak(ticket, ticket + claim * kOneChunk,
                                       std::memory_order_acq_rel, std::memory_order_acquire)) {
      continue;
    }
    const Task& task = tasks_[GenerationOf(ticket) % 2];
    task.call(task.body, NextOf(ticket), NextOf(ticket) + claim);
    count += claim;
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return count;
}

bool ThreadPool::HasWork() const {
  const uint64_t ticket = ticket_.load();
  return NextOf(ticket) < LimitOf(ticket);
}

bool ThreadPool::IsDone(uint32_t by_caller) const {
  // In this order: a chunk that is counted here has extended its job before.
  const uint32_t done = done_.load(std::memory_order_acquire);
  return done == chunks_of_job_.load(std::memory_order_relaxed) - by_caller;
}

void ThreadPool::AwaitDone(uint32_t by_caller) {
  const auto is_done = [&] { return IsDone(by_caller) || HasWork(); };
  Wait(caller_limit_, is_done, [&] {
    caller_parked_ = true;
    for (uint32_t done = done_.load(); !IsDone(by_caller); done = done_.load()) done_.wait(done);
    caller_parked_ = false;
  });
}

void ThreadPool::WorkerLoop() {
  SpinLimit limit;
  while (!stop_.load(std::memory_order_relaxed)) {
    Wait(
        limit, [this] { return HasWork(); }, [this] { Park(); });
    if (const uint32_t count = Work(); count > 0) {
      done_ += count;
      if (caller_parked_.load()) done_.notify_one();
    }
  }
}

void ThreadPool::Park() {
  const uint32_t seen = wake_.load();
  ++parked_;
  // Pairs with RunShared: either it sees parked_, or this sees its ticket.
  if (!HasWork() && !stop_.load()) wake_.wait(seen);
  --parked_;
}

}  // namespace baton::kernels::cpu
