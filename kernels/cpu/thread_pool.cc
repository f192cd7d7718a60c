#include "kernels/cpu/thread_pool.h"

#include "common/check.h"

namespace baton::kernels::cpu {
namespace {

// Some 50 microseconds; the short one is used while the machine shows that cores are shared.
constexpr uint32_t kLongSpin = 2000;
constexpr uint32_t kShortSpin = 100;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t NextOf(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 16) & 0xffff; }
uint32_t LimitOf(uint64_t ticket) { return static_cast<uint32_t>(ticket) & 0xffff; }
constexpr uint64_t kOneChunk = uint64_t{1} << 16;

}  // namespace

ThreadPool::ThreadPool(uint32_t threads) {
  BATON_CHECK(threads >= 1);
  for (uint32_t i = 1; i < threads; ++i) workers_.emplace_back([this] { WorkerLoop(); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++wake_;
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunShared(uint32_t chunks, CallBody call, const void* body) {
  BATON_CHECK(chunks <= 0xffff);
  if (chunks == 0) return;
  ++synchronisations_;
  call_ = call;
  body_ = body;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(generation << 32 | chunks);
  if (parked_.load() > 0) {
    ++wake_;
    wake_.notify_all();
  }
  AwaitDone(chunks - Work());
}

uint32_t ThreadPool::Work() {
  uint32_t count = 0;
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (NextOf(ticket) < LimitOf(ticket)) {
    if (!ticket_.compare_exchange_weak(ticket, ticket + kOneChunk, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    call_(body_, NextOf(ticket));
    ++count;
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return count;
}

bool ThreadPool::HasWork() const {
  const uint64_t ticket = ticket_.load();
  return NextOf(ticket) < LimitOf(ticket);
}

void ThreadPool::AwaitDone(uint32_t wanted) {
  for (uint32_t spin = 0; spin < kLongSpin; ++spin) {
    if (done_.load(std::memory_order_acquire) == wanted) return;
    Pause();
  }
  caller_parked_ = true;
  for (uint32_t done = done_.load(); done != wanted; done = done_.load()) done_.wait(done);
  caller_parked_ = false;
}

void ThreadPool::WorkerLoop() {
  uint32_t spin_limit = kLongSpin;
  while (!stop_.load(std::memory_order_relaxed)) {
    uint32_t spin = 0;
    while (spin < spin_limit && !HasWork()) {
      Pause();
      ++spin;
    }
    spin_limit = spin < spin_limit ? kLongSpin : kShortSpin;
    if (spin >= spin_limit && !HasWork()) Park();
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
